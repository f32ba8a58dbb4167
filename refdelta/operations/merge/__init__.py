"""MERGE, in six modules: plan, join, matches, strategy, execution and result."""
