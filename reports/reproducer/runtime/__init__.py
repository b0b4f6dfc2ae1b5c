"""What reproducers are made of: functions that are copied into them (excerpt.py), with what they call."""
