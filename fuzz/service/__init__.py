"""The service: a server that keeps jobs and findings, and workers that lease jobs over HTTP and run kernels."""
