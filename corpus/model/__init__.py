"""The records that are written to disk or cross a process; nothing here runs."""
