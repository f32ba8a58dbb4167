"""How work is spread over threads and processes, and cut into chunks of bounded size."""
