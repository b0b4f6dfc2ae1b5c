"""A run before it begins: what it searches for, and what it must reach."""
