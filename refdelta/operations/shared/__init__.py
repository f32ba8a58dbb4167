"""The parts that several operations share: changes of a table, rewrites of rows, row ids, rules of rows."""
