"""Transactions: one snapshot, its reads, its staged actions, its commit. They know no operation."""
