"""Sets of rows: which are read, deleted and hidden, and where they are after others moved them."""
