"""One case in a process that a person looks into: by pdb, or by torch's profiler."""
