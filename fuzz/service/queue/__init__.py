"""Jobs, their tasks and leases, and the life of findings: what the server keeps in its database."""
