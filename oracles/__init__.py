"""The judge: contracts, references, error budgets and verdicts."""
