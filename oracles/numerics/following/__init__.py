"""Formulas on numbers that carry limits: what rounding, other forms and other orders may do to them."""
