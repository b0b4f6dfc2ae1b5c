"""Stored cases run or judged again, and what has changed."""
