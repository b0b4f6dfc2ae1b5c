"""What the supervisor and the worker both know: messages, devices, outputs that are handed over."""
