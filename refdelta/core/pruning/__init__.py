"""Whether a file can hold a row for which a predicate is true: statistics, partition values, disjointness."""
