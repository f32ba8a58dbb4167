"""The operations, one in each module: they read a snapshot and stage actions in a transaction."""
