"""Oracles: contracts, references, error budgets and verdicts."""
