"""A case under a debugger or a profiler, in a process of its own."""
