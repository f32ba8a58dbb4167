"""DELETE and UPDATE, and what they share: rows that are hidden or written anew, their ids, their change files."""
