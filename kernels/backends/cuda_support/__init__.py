"""Kernels in CUDA C++ on a GPU: front matter, compilation, the driver."""
