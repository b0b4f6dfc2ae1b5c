"""The protocol between supervisor and worker: messages, devices, outputs that are handed over."""
