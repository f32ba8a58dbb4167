"""Rows that come in: appends, overwrites, new tables, clones, conversions, files of other programs."""
