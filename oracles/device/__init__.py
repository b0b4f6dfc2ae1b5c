"""Judges outputs where they lie, on a GPU. Only a process that judges, and runs no subject, ever imports it."""
