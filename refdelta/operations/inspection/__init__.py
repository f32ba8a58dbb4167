"""Answers from the log, for people: reasons of conflicts, timelines, differences between versions."""
