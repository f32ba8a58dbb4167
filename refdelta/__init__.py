"""The Delta Lake commit protocol in pure Python."""
