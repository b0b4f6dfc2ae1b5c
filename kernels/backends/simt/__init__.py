"""CUDA C++ on the CPU: an emulator in C++ (the headers, and runtime/), how it is built, and how it is called."""
