"""The log in stores: snapshots, checkpoints, checksums, listings, cleanup."""
