"""Processes of ours: how they start, talk and end."""
