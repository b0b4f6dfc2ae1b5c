"""References that are made of torch: the only part of the oracle, besides the device's, that imports it."""
