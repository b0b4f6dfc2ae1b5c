"""Reports: read records and say them in words."""
