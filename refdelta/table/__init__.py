"""The contract of a table: types, features, properties, column mapping, row tracking, other formats."""
