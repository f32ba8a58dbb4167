"""The public API: tables, writes, transactions by hand, and the builders of MERGE, ALTER and OPTIMIZE."""
