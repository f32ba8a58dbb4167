"""The main job, and races of processes: the demo, and what `refdelta bench` runs."""
