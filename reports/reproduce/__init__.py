"""What reproducers are made of: functions that are copied into them (reports/excerpt.py), with what they call."""
