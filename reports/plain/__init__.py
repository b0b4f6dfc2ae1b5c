"""Plain text for terminals, logs and summaries of CI jobs."""
