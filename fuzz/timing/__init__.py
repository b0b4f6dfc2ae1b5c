"""Times of kernels: rounds that are interleaved, shuffled and judged, beside the limits of the machine."""
