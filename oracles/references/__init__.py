"""References of users: a process of their own that loads, describes and runs them. Nothing here is imported by a judge."""
