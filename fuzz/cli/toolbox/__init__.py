"""Commands that look at one thing closely."""
