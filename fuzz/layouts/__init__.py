"""Layouts of problems that exist, recognised by their files: one file each, found by its place (layout_registry.py)."""
