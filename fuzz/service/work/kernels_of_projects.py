"""The kernels of a project's kassay.toml as a job takes them: what does not load ends the search of no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_assay.corpus.errors import UsageError
from kernel_assay.fuzz.checking.user_references import op_name
from kernel_assay.fuzz.service.project_file import held_at
from kernel_assay.fuzz.service.work.assignment import Work
from kernel_assay.kernels.catalog import read_subject, user_subject


def as_the_project_says(work: Work) -> Work:
    """The job with what each file is held to by kassay.toml, references with whole paths.

    Without what is named twice, and files that do not load: one that is broken ends the search of no other. Raises
    UsageError, that of the first, if none loads.
    """
    held = held_at(work.request, work.places.sources)
    if not held:
        return work
    target = work.request.target
    references, sound, wrong = dict[str, str](), dict[tuple[str, str], str](), list[UsageError]()
    for text, its in zip(target.subjects, held, strict=True):
        try:
            if its in target.references:
                (references[its],) = work.files([its])
            sound.setdefault((_read(work, text, its, is_op=its not in references), its), text)
        except UsageError as error:
            wrong.append(error)
    if not sound:
        raise wrong[0]
    return replace(
        work,
        request=work.request.but(target=target.but(subjects=tuple(sound.values()), references=tuple(references))),
        held=tuple(references.get(its, its) for _, its in sound),
        left_out=tuple(map(str, wrong)),
    )


def _read(work: Work, text: str, held: str, *, is_op: bool) -> str:
    """The whole path, and function, of a kernel. Raises UsageError if its file cannot be read."""
    (file,) = work.files([text])
    path, _, function = file.partition(":")
    if is_op:
        user_subject(file, (held,) if held else ())
    else:
        named, _, name = held.partition(":")
        read_subject(Path(path), op=op_name(name or Path(named).stem), function=function)
    return f"{Path(path).resolve()}:{function}"


def without_who_does_not_load(work: Work, error: UsageError) -> Work:
    """The job without the kernels of a project whose file, or reference, an error is about. Raises it for the last."""
    target, said = work.request.target, str(error)
    own = zip(work.files(target.subjects), work.held, strict=False)
    bad = [said.startswith((file.partition(":")[0], held.partition(":")[0] or "\0")) for file, held in own]
    if not any(bad) or all(bad):
        raise error
    kept = [number for number, is_bad in enumerate(bad) if not is_bad]
    held = tuple(work.held[n] for n in kept)
    references = [
        one for one, whole in zip(target.references, work.files(target.references), strict=True) if whole in held
    ]
    left = target.but(subjects=tuple(target.subjects[n] for n in kept), references=tuple(references))
    return replace(work, request=work.request.but(target=left), held=held, left_out=(*work.left_out, said))
