"""The accused: implementations under test, and the box they run in."""
