"""The search for performance cliffs: sizes that cost far more than the sizes beside them."""
