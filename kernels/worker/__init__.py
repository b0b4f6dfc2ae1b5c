"""The isolated process, in which the code under test runs."""
