"""Whole CUDA programs, run in a process of their own."""
