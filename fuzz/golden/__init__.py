"""Outputs of a kernel on a fixed list of cases: saved once, and held against those of other versions and machines."""
