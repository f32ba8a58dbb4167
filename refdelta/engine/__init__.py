"""The Arrow engine: the core's definitions over columns, and Parquet."""
