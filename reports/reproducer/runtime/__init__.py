"""What reproducers are made of: functions that are copied into them (reports/reproducer/excerpt.py), with what they call."""
