"""Plain text, as `python -m fuzz run` prints it."""

from reports.form import Format
from reports.text import campaign_text

FORMAT = Format("text", "Plain text, as a run prints it.", campaign_text)
