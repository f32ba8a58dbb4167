"""Concurrent programs through the public API, held to an oracle of all serial orders."""
