"""One operation a module: what it does to a snapshot becomes staged actions."""
