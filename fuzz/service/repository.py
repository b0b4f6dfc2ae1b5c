"""Addresses of repositories: the forms that server and workers take, by one rule."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from kernel_assay.corpus.errors import UsageError

SCHEMES = ("https", "ssh")
_SCP = re.compile(r"(?:([A-Za-z0-9_][\w.-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!/|:)(.+)", re.ASCII)
"""`git@host:group/repository.git`, as git takes it besides addresses."""


def whole(address: str) -> str:
    """An address as a URL, where it is written as scp does; any other as it is."""
    if "://" in address or (found := _SCP.fullmatch(address)) is None or not (found[1] or "." in found[2]):
        return address
    return f"ssh://{found[1] + '@' if found[1] else ''}{found[2]}/{found[3]}"


def is_path(address: str) -> bool:
    """Whether it is the path of a folder on the worker; of what is no address at all, no."""
    return address.startswith(("/", "file:"))


def check_repository(address: str) -> SplitResult:
    """The parts of an address: https, ssh, or the whole path of a folder on the worker (`file`).

    Raises UsageError for any other, and for one with a password: it is kept, and shown to all who read.
    """
    if not address.isprintable() or not address.strip():
        raise UsageError("the repository's address is empty, or has characters that no address has")
    try:
        parts = urlsplit(whole(address))
        _ = parts.port  # read for its ValueError
    except ValueError as error:
        raise UsageError(f"the repository's address is none: {error}") from error
    if parts.scheme in {"", "file"}:
        path = parts.path if parts.scheme else address
        if parts.netloc or not path.startswith("/"):
            raise UsageError(f"{address[:200]!r} is no address of a repository: {FORMS}")
        return SplitResult("file", "", path, "", "")
    if parts.scheme not in SCHEMES:
        raise UsageError(f"{address[:200]!r} has a scheme that workers do not fetch: {FORMS}")
    if parts.password is not None or (parts.scheme == "https" and parts.username is not None):
        raise UsageError("a repository's address is kept and shown: leave the password out of it")
    if not parts.hostname or parts.hostname.startswith("-") or (parts.username or "").startswith("-"):
        raise UsageError(f"{address[:200]!r} names no host")
    return parts


FORMS = "write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, or the whole path of a folder on the workers"
