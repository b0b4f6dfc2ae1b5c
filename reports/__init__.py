"""The teller: reads records and says them in words."""
