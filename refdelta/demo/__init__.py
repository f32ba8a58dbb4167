"""The main job, in parts: appends, changes of rows beside OPTIMIZE, and the same in a catalog; all is checked."""
