"""The Delta log as values: pure functions on actions, no file, no clock, no Arrow."""
