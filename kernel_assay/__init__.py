"""Fuzzing and differential testing of compute kernels; its packages are the folders beside this one, by links."""

__version__ = "0.2.0"
