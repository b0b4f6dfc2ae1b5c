"""The way from a failing case to a finding: confirm, shrink, explain, file."""
