"""The search: what to try next, and the commands."""
