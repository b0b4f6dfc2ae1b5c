"""The forms of a report: each file defines FORMAT, named like the file."""
