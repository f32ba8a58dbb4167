"""Files that are put together, sorted, clustered or freed of deleted rows."""
