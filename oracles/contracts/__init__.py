"""One file per op: its formula, reference, budget and laws."""
