"""Small things that Arrow leaves to its callers: types of the table in Arrow's, variants, arithmetic of arrays."""
