"""VACUUM, RESTORE, history and detail."""
