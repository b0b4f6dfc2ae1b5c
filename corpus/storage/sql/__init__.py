"""The store in a database: SQLite in one file, or PostgreSQL."""
