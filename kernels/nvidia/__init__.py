"""One case under a tool of NVIDIA's: compute-sanitizer and Nsight Compute."""
