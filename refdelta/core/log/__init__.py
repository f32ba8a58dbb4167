"""The log as values: actions, their encoding, names of files, replay, footprints, and what a commit gives anew."""
