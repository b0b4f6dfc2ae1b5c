"""The language of contracts: axes, laws, balls, fidelity."""
