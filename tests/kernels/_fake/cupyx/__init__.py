"""See cupy beside it."""
