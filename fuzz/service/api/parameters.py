"""Parameters that several endpoints take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from kernel_assay.fuzz.service.protocol import ID, TASK, Name

LARGEST = 2**63 - 1
After = Annotated[int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500)]
Id = Annotated[str, Path(pattern=ID)]
TaskId = Annotated[str, Path(pattern=TASK)]
Named = Annotated[Name, Path()]
Of = Annotated[Name | None, Query()]
