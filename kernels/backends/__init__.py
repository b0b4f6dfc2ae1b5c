"""One file per backend: how a subject of that kind is found, loaded and called."""
