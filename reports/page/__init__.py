"""The parts of the HTML page, and its templates."""
