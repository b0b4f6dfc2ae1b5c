"""References of users: the process that loads, describes, runs and follows one, and the contract it becomes."""
