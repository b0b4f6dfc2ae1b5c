"""Parameters that several endpoints take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from kernel_assay.fuzz.service.protocol import Name

LARGEST = 2**63 - 1
After = Annotated[int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500)]
Id = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$")]
TaskId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}-[0-9]{1,10}$")]
Named = Annotated[Name, Path()]
Of = Annotated[Name | None, Query()]
