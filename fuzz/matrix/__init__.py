"""Test matrices: cells of op, dtype, shape set, layout, device and kernel, each a small run."""
