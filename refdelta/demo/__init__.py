"""The main job, in parts: appends, changes of rows beside OPTIMIZE, a catalog, writers in a group; all is checked."""
