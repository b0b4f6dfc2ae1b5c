"""Every input there is, for ops of few bits."""
