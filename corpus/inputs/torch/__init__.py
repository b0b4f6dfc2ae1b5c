"""Inputs made where they are used, by torch. Only a process that runs subjects, or judges on a device, imports it."""
