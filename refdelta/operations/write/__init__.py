"""New rows and new tables: appends, overwrites, CREATE, clones, conversions, files of other programs."""
