"""Commands beside the search: how fast a kernel is, and more."""
