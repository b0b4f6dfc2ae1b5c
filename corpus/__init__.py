"""The corpus: its records, the recipe language, materialization and the store."""
