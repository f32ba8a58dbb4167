"""Arrow's side of a table: its types and partition columns in Arrow's, variants, arithmetic of arrays."""
