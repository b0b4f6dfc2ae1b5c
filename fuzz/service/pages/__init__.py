"""Pages for people, live while they are looked at."""
