"""The ground that every backend stands on: signatures, guarded memory, settings of libraries."""
