"""Other libraries' names on refdelta, for programs that were written for them."""
