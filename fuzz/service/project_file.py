"""kassay.toml: what of a repository is searched for bugs, how often, for how long, and whom that concerns."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, StringConstraints, ValidationError, model_validator

from kernel_assay.corpus.errors import UsageError, about
from kernel_assay.corpus.model.base import Record
from kernel_assay.corpus.model.reference_place import Target as ReferenceTarget
from kernel_assay.fuzz.checking.selection import UserKernels
from kernel_assay.fuzz.service.protocol import TIME, JobRequest, Name, Project, Settings, Short, Target, sentence_of
from kernel_assay.fuzz.settings import seconds_of
from kernel_assay.oracles.catalog import contract_of

NAME = "kassay.toml"
SCHEMA = Path(__file__).with_name("kassay.schema.json")
Time = Annotated[str, StringConstraints(pattern=TIME, max_length=20)]
MOST = 200


class Kernel(Record):
    """A kernel of the repository."""

    file: Short
    """`FILE[:NAME]`, from the root of the repository on."""
    op: Name | None = None
    """Of the built-in ops; None: the file says OP, or there is a reference."""
    reference: Short | None = None
    """`FILE[:NAME]` of what is right, instead of an op."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.op and self.reference:
            raise ValueError("a kernel has an op or a reference, and not both")
        return self


class Schedule(Record):
    """Times at which it is searched, besides after each commit."""

    every: Time = "24h"
    priority: int = Field(default=4, ge=0, le=9)
    """9 comes first."""


class Budget(Record):
    """Budget of one search."""

    time: Time | None = None
    """None, and no cases: a minute."""
    cases: PositiveInt | None = None
    timeout: Time | None = None
    """Of one execution of a kernel."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.time and self.cases:
            raise ValueError("a budget is a time or a number of cases, and not both")
        return self


class ProjectFile(Record):
    """The contents of kassay.toml."""

    owners: tuple[Short, ...] = Field(default=(), max_length=50)
    """Names or addresses."""
    device: Literal["cpu", "cuda"] = "cpu"
    dtypes: tuple[Name, ...] = ()
    """None: all that the kernels take."""
    strict: bool = False
    """Whether failures that did not show again count."""
    schedule: Schedule = Schedule()
    budget: Budget = Budget()
    kernels: tuple[Kernel, ...] = Field(min_length=1, max_length=MOST)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises UsageError, one sentence, for one that cannot be read or is not as the schema says."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text("utf-8")))
        except ValidationError as error:
            first = error.errors()[0]
            unknown = first["type"] == "extra_forbidden"
            said = f"{'.'.join(map(str, first['loc']))} is no key of {NAME}" if unknown else sentence_of(error, "it")
            raise UsageError(f"{path}: {said}") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error

    @property
    def target(self) -> Target:
        """All kernels, as a job names them."""
        return Target(
            ops=tuple(dict.fromkeys(kernel.op for kernel in self.kernels if kernel.op)),
            subjects=tuple(kernel.file for kernel in self.kernels),
            references=tuple(dict.fromkeys(kernel.reference for kernel in self.kernels if kernel.reference)),
        )

    @property
    def held(self) -> tuple[str, ...]:
        """Tell what each kernel is held to, in their order."""
        return tuple(kernel.op or kernel.reference or "" for kernel in self.kernels)

    @property
    def settings(self) -> Settings:
        """Settings of each search."""
        b = self.budget
        return Settings(
            seconds=seconds_of(b.time) if b.time else None,
            cases=b.cases,
            timeout=seconds_of(b.timeout) if b.timeout else None,
            device=self.device,
            dtypes=self.dtypes,
            strict=self.strict,
        )

    def project(self, repository: str) -> Project:
        """The project as the server keeps it: what is searched stands in the file, at each commit."""
        return Project(
            repository=repository,
            settings=self.settings,
            every_hours=seconds_of(self.schedule.every) / 3600,
            priority=self.schedule.priority,
            owners=self.owners,
        )

    def check(self, root: Path) -> None:
        """Raise UsageError for a file that is not there, or does not say its op where there are several."""
        for kernel in self.kernels:
            for text in filter(None, (kernel.file, kernel.reference)):
                path = (root / ReferenceTarget.read(text).where).resolve()
                if not path.is_relative_to(root.resolve()) or not path.is_file():
                    raise UsageError(f"{NAME}: {text} is no file of the repository")
        for op in self.target.ops:
            contract_of(op)
        own = [kernel for kernel in self.kernels if not kernel.reference]
        with about(NAME):
            files, held = [str(root / kernel.file) for kernel in own], [kernel.op or "" for kernel in own]
            UserKernels(files, held=held).subjects(self.target.ops)


def at_commit(request: JobRequest, sources: Path) -> JobRequest:
    """A job about a commit whose kassay.toml says which kernels are meant, where the job itself does not."""
    path = sources / NAME
    if request.checkout is None or request.target.id != Target().id or not path.is_file() or path.is_symlink():
        return request
    return request.but(target=ProjectFile.read(path).target)


def held_at(request: JobRequest, sources: Path) -> tuple[str, ...]:
    """Tell what each kernel of a job is held to, if it has them from kassay.toml; nothing, if it has not."""
    path = sources / NAME
    if request.checkout is None or not path.is_file() or path.is_symlink():
        return ()
    said = ProjectFile.read(path)
    return said.held if said.target == request.target else ()


def schema() -> str:
    """The JSON schema of kassay.toml, for editors."""
    return json.dumps(ProjectFile.model_json_schema(), indent=2) + "\n"
