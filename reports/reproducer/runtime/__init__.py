"""The parts of reproducers: functions that are copied into them (excerpt.py), with what they call."""
