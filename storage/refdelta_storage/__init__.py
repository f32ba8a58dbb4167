"""Put-if-absent, ordered listings and ranged reads over fsspec."""
