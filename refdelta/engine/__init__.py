"""The Arrow engine: snapshots, scans, Parquet writes."""
