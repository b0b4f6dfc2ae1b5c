"""A finding as one Python file that runs without this project."""
