"""Triton on the CPU: its interpreter, with what is mended of it."""
