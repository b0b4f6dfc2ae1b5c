"""The commands: options are parsed and results printed here."""
