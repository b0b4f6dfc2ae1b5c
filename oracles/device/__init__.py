"""The judge on a GPU: its own kernels, and the one place outside of `kernels/` that may talk to a driver."""
