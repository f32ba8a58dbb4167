"""The Arrow engine: threads and chunks, Parquet, snapshots and checkpoints, planned reads."""
