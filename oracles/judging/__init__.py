"""The verdict on one execution, against a reference and an error budget."""
