"""Reads, footprints, and the rules by which two transactions conflict."""
