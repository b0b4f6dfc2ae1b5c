"""Fuzzing and differential testing of compute kernels; its packages are the folders beside this one, by links."""
