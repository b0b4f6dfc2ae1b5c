"""The corpus on disk: findings, runs and what they keep."""
