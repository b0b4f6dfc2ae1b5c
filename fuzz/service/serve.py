"""Starts a server: its first token, its log, uvicorn."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import ssl
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from sqlalchemy import select

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.sql.service_tables import token
from kernel_assay.fuzz.service.app import application
from kernel_assay.fuzz.service.auth import make_token
from kernel_assay.fuzz.service.core import LOG, Service
from kernel_assay.fuzz.service.protocol import Scope
from kernel_assay.fuzz.service.queue.rows import SYSTEM
from kernel_assay.fuzz.service.settings import ServiceSettings

FIRST = "admin"
GRACE_SECONDS = 5
"""How long requests may take to end when the server is told to."""


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
    uvicorn.Server(config).run(sockets=[listening])


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
