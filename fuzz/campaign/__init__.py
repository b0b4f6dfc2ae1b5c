"""One long search: batches, counters, time, and processes that search together."""
