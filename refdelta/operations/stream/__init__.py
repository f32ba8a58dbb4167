"""Reading a table as a stream: the rows of a version, then those that later commits add or change."""
