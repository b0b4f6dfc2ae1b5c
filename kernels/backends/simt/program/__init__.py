"""Whole CUDA programs on the CPU: their sources rewritten and compiled, and what was found while they ran."""
