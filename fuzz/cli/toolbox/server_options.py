"""The server and the token: options, the environment, or a file in ~/.config, in this order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kernel_assay.corpus.errors import UsageError

SERVER = "http://127.0.0.1:8765"


def config_file() -> Path:
    """The file that may name a server and a token: `server = "..."`, `token = "..."`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home, "kassay", "remote.toml")


def _configured(name: str) -> str:
    """Raises UsageError for a file that is no TOML."""
    path = config_file()
    try:
        return str(tomllib.loads(path.read_text("utf-8")).get(name, ""))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not understood: {error}") from error


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --server, --token and --token-file."""
    options = (
        click.option("--server", metavar="URL", help=f"[default: KASSAY_SERVER, {config_file()}, or {SERVER}]"),
        click.option("--token", metavar="TOKEN", default="", help="[default: KASSAY_TOKEN, or the same file]"),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A file with nothing but the token: others see a command line, and this not.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def with_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Say in one sentence what is not installed, and fill in the server."""

    @wraps(command)
    def made(*, server: str | None, **rest: Any) -> Any:
        chosen = server or os.environ.get("KASSAY_SERVER") or _configured("server") or SERVER
        try:
            return command(server=chosen, **rest)
        except ModuleNotFoundError as error:
            raise UsageError(f"{error.name} is not installed: pip install 'kernel-assay[service]'") from error

    return made


def secret_of(token: str, token_file: Path | None) -> tuple[str, tuple[Path, ...]]:
    """The token, and the files that hold one. Raises UsageError if there is none."""
    if token_file is not None:
        try:
            token = token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the token in {token_file} cannot be read: {error}") from error
    found = token or os.environ.get("KASSAY_TOKEN") or _configured("token")
    if not found:
        raise UsageError("a token is needed: --token-file FILE, or KASSAY_TOKEN; an admin of the server makes one")
    if not found.isascii() or not found.isprintable():
        raise UsageError("the token has characters that none has; it begins with kassay_")
    return found, tuple(path for path in (token_file, config_file()) if path is not None)
