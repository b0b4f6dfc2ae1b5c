"""The worker's side of the service: leases tasks over HTTP, and has each executed in a process of its own."""
