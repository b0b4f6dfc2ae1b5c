"""The memory: the nouns, the recipe language, materialization and the store."""
