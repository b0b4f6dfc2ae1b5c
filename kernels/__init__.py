"""Code under test: implementations, and the sandbox they run in."""
