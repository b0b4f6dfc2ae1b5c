"""Commands beside the search: one file each."""
