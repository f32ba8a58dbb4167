"""What a table promises: types, features, properties, column mapping, row tracking, other formats."""
