"""Error bounds and the arithmetic they are derived with."""
