"""Plain text, as `python -m fuzz run` prints it."""

from kernel_assay.reports.form import Format
from kernel_assay.reports.plain.run_text import campaign_text

FORMAT = Format("text", "Plain text, as a run prints it.", campaign_text)
