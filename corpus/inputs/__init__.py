"""Inputs from recipes: the same bytes in every process, on every machine."""
