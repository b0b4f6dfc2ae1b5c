"""Starts a server: its first token, its log, uvicorn."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import uvicorn
from sqlalchemy import select

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.process.child import command_of
from kernel_assay.corpus.storage.sql.service_tables import token
from kernel_assay.fuzz.service.app import application
from kernel_assay.fuzz.service.auth import make_token, revoke
from kernel_assay.fuzz.service.core import LOG, Service
from kernel_assay.fuzz.service.problems import MissingError
from kernel_assay.fuzz.service.protocol import Scope
from kernel_assay.fuzz.service.queue.rows import SYSTEM
from kernel_assay.fuzz.service.settings import ServiceSettings

FIRST = "admin"
GRACE_SECONDS = 5
"""How long requests may take to end when the server is told to."""
ENGINE = "engine"
"""Name of its token."""
ENGINE_SECONDS = 20.0
"""For the engine to end, and between two starts of it."""
USAGE, COMPLAINT = 2, "kassay: "
"""Exit code of a command that cannot do what it was asked, and how the line begins that says why."""
AT_WORK = (" work for ", " at a time, for ")
"""What an engine says that has all it needs (ray_engine.py, `kassay work`)."""


def serve(settings: ServiceSettings, say: Callable[[str], None], *, quiet: bool = False, browser: bool = False) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UsageError if the address is taken or the database cannot be opened.

    say: is told the address, and the first token when there is none yet: the only time that it is shown.
    """
    _readable(settings)
    listening = _bound(settings)
    service = Service(settings)
    secret = first_token(service)
    address = settings.address
    say(f"serving {service.database.name} at {address}")
    if secret:
        say(f"first token, shown this once (scopes read, submit, work, admin): {secret}")
    link = f"{address}/signin/{service.door.once(FIRST)}" if _has(service, FIRST) else f"{address}/signin"
    say(f"sign in: {link}" + (" (good once, for ten minutes)" if link[-1] != "n" else ""))
    _log_lines(quiet)
    config = uvicorn.Config(
        application(service),
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=str(settings.certificate) if settings.certificate else None,
        ssl_keyfile=str(settings.private_key) if settings.private_key else None,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
        proxy_headers=False,
    )
    if browser:
        threading.Timer(0.5, webbrowser.open, [link]).start()
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it again when all is ended, and that was no death
    config.load()
    gc.collect()
    gc.freeze()  # what is there by now stays: a collection has not to look at it again
    server = _Server(config)
    if settings.engine:
        server.engine = Engine(settings, _token_of_engine(service), lambda: setattr(server, "should_exit", True))
        server.engine.start()
    server.run(sockets=[listening])
    if server.engine is not None and server.engine.refused:
        raise UsageError(server.engine.refused)


class _Server(uvicorn.Server):
    """Ends its engine first: what is handed back must find a server."""

    engine: Engine | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End, by a signal; at once at the second one."""
        if self.engine is None or self.engine.ending.is_set():
            super().handle_exit(sig, frame)
            return
        self.engine.ended = lambda: super(_Server, self).handle_exit(sig, frame)
        self.engine.ending.set()


class Engine(threading.Thread):
    """The worker that is started along, started again when it dies, until `ending` is set."""

    def __init__(self, settings: ServiceSettings, secret: str, refuse: Callable[[], None]) -> None:
        """secret: of a token of the scope work; refuse: is called when it cannot be started at all."""
        super().__init__(name="engine", daemon=True)
        words = "work", "--server", settings.address, "--name", *settings.engine
        self._command = command_of("corpus.process.parent_death", *command_of("fuzz.__main__", *words))
        self._secret, self.ended = secret, refuse
        self.ending = threading.Event()
        self._was_there = False
        self.refused = ""
        """Why there is none, in one sentence."""

    def run(self) -> None:
        """Keep a process running."""
        while not self.ending.is_set():
            began = time.monotonic()
            code, words = self._once()
            if code == USAGE and not self._was_there:
                self.refused = f"the worker that --engine starts: {words.removeprefix(COMPLAINT)}"
                break
            if not self.ending.is_set():
                why = words.removeprefix(COMPLAINT) if words.startswith(COMPLAINT) else f"exit code {code}"
                LOG.warning("engine: it has ended, and is started anew: %s", why)
            self.ending.wait(max(0.0, ENGINE_SECONDS - (time.monotonic() - began)))
        self.ended()

    def _once(self) -> tuple[int, str]:
        """The exit code of one, and its last line."""
        environment = {**os.environ, "KASSAY_TOKEN": self._secret}
        words = ""
        with subprocess.Popen(self._command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            threading.Thread(target=self._end, args=(process,), daemon=True).start()
            for line in process.stderr or ():
                words = line.strip()
                self._was_there = self._was_there or any(one in words for one in AT_WORK)
                if not words.startswith(COMPLAINT):
                    LOG.warning("engine: %s", words)
        return process.returncode, words

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Have it hand back what is under way once it is time."""
        while process.poll() is None:
            if self.ending.wait(1.0):
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENGINE_SECONDS)
                process.kill()
                return


def _token_of_engine(service: Service) -> str:
    """Make the engine's token, in the place of that of an earlier start; its secret."""
    with service.database.writing() as connection:
        with suppress(MissingError):
            revoke(connection, ENGINE, SYSTEM)
        return make_token(connection, ENGINE, [Scope.WORK], None, SYSTEM)


def first_token(service: Service) -> str:
    """Make a token of all scopes if there is none at all; its secret, or an empty text."""
    with service.database.writing() as connection:
        if connection.scalar(select(token.c.name).limit(1)) is not None:
            return ""
        return make_token(connection, FIRST, [one for one in Scope if one is not Scope.FEED], None, SYSTEM)


def _has(service: Service, name: str) -> bool:
    with service.database.reading() as connection:
        return connection.scalar(select(token.c.name).where(token.c.name == name)) is not None


def _readable(settings: ServiceSettings) -> None:
    """Raises UsageError if the certificate or its key are none."""
    if settings.certificate:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.private_key)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UsageError(
                f"{settings.certificate} and {settings.private_key} are no certificate with its key ({reason})"
            ) from error


def _bound(settings: ServiceSettings) -> socket.socket:
    """The socket, bound before anything is made: two servers do not share an address."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sends at once only then
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(128)  # who follows the printed link at once waits for its page
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{settings.host} port {settings.port} cannot be listened at ({reason}); name another by --port"
        ) from error
    return listening


def _log_lines(quiet: bool) -> None:
    """Send a line of JSON a request to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for log in (LOG, logging.getLogger("uvicorn.error")):
        log.addHandler(handler)
        log.setLevel(logging.WARNING if quiet or log is not LOG else logging.INFO)
        log.propagate = False
