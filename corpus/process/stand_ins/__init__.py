"""Modules for an interpreter of another version of Python, in place of compiled packages of ours."""
