"""Data files and deletion vectors, read and written."""
