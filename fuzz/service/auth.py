"""Callers and what they may do: tokens for programs, cookies for browsers. Only digests of both are kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Connection, delete, select, update

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.sql.service_tables import session, token
from kernel_assay.fuzz.service.problems import MissingError, RefusedError
from kernel_assay.fuzz.service.protocol import Scope
from kernel_assay.fuzz.service.queue.database import Row, ServerDatabase
from kernel_assay.fuzz.service.queue.rows import insert, moment, note

PREFIX, COOKIE = "kassay_", "kassay_session"
DAY = 86_400.0
SESSION_SECONDS, ONCE_SECONDS, USED_SECONDS = 7 * DAY, 600.0, 60.0
"""How long a browser stays signed in, how long a link that signs in is good, how often a token's use is noted."""
MOST_DAYS = 3650


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who asks; csrf: what forms of their browser must bring."""

    name: str
    scopes: frozenset[Scope]
    csrf: str = ""


PUBLIC = Caller("public", frozenset({Scope.READ}))


def digest(secret: str) -> str:
    """sha256, 64 hex digits: of long random secrets it needs no salt."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def make_token(connection: Connection, name: str, scopes: Iterable[Scope], days: float | None, who: str) -> str:
    """Make a token; its secret, which is told this once. Raises UsageError for a name that is taken."""
    secret, wanted = PREFIX + secrets.token_urlsafe(32), sorted(set(scopes))
    if not wanted:
        raise UsageError("a token needs a scope: read, submit, work, admin or feed")
    if Scope.FEED in wanted and len(wanted) > 1:
        raise UsageError("a token of the scope feed has no other: it stands in the addresses of feeds")
    expires = None if days is None else time.time() + days * DAY
    row = {"name": name, "digest": digest(secret), "scopes": " ".join(wanted), "created": time.time()}
    made = insert(connection, token).values(**row, expires=expires).on_conflict_do_nothing()
    if not connection.execute(made).rowcount:
        raise UsageError(f"there is a token {name!r} already; revoke it, or take another name")
    note(connection, who, "token made", noun="token", about=name, words=" ".join(wanted))
    return secret


def revoke(connection: Connection, name: str, who: str) -> None:
    """Make a token worthless, and sign out who signed in by it. Raises MissingError."""
    if not connection.execute(delete(token).where(token.c.name == name)).rowcount:
        raise MissingError(f"there is no token {name[:100]!r}")
    connection.execute(delete(session).where(session.c.token == name))
    note(connection, who, "token revoked", noun="token", about=name)


def told(row: Row) -> Row:
    """A token as it is told: all but its digest."""
    times = {name: at and at.isoformat() for name in ("created", "expires", "used") for at in [moment(row[name])]}
    return {"name": row["name"], "scopes": row["scopes"].split(), **times}


def tokens(connection: Connection) -> list[Row]:
    """All tokens, by name."""
    return [told(dict(row)) for row in connection.execute(select(token).order_by(token.c.name)).mappings()]


class Doorkeeper:
    """Knows callers by what they bring."""

    def __init__(self, database: ServerDatabase, *, public: bool = False) -> None:
        """public: whether anybody may read."""
        self.database, self.public = database, public
        self._once: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def caller(self, request: Request) -> Caller | None:
        """Whoever asks; None: nobody that is known. Raises RefusedError for a token or a form that is not right."""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind:
            found = self.holder(secret.strip()) if kind.lower() == "bearer" else None
            if found is None:
                raise unknown()
            return found
        if secret := request.cookies.get(COOKIE, ""):
            return self._by_cookie(secret) or (PUBLIC if self.public else None)
        return PUBLIC if self.public else None

    def holder(self, secret: str) -> Caller | None:
        """Whoever holds a token; None: it is not known."""
        with self.database.reading() as connection:
            row = _valid(connection, token.c.digest == digest(secret))
        if row is None or not hmac.compare_digest(row["digest"], digest(secret)):
            return None
        self._note_use(row)
        return _caller(row)

    def _note_use(self, row: Row) -> None:
        if (row["used"] or 0) < time.time() - USED_SECONDS:
            with self.database.writing(lazy=True) as connection:
                connection.execute(update(token).where(token.c.name == row["name"]).values(used=time.time()))

    def _by_cookie(self, secret: str) -> Caller | None:
        with self.database.reading() as connection:
            asked = select(session).where(session.c.digest == digest(secret), session.c.expires > time.time())
            found = connection.execute(asked).mappings().first()
            row = found and _valid(connection, token.c.name == found["token"])
        return _caller(row, found["csrf"]) if row and found else None

    def sign_in(self, secret: str) -> str:
        """Begin the session of a browser by a token; the cookie. Raises RefusedError."""
        found = self.holder(secret.strip())
        if found is None:
            raise unknown()
        return self._begin(found.name)

    def _begin(self, name: str) -> str:
        cookie = secrets.token_urlsafe(32)
        row = {"digest": digest(cookie), "token": name, "csrf": secrets.token_urlsafe(24)}
        with self.database.writing() as connection:
            connection.execute(delete(session).where(session.c.expires < time.time()))
            connection.execute(session.insert().values(**row, expires=time.time() + SESSION_SECONDS))
            note(connection, name, "signed in", noun="token", about=name)
        return cookie

    def sign_out(self, cookie: str) -> None:
        """End the session of a browser."""
        with self.database.writing() as connection:
            connection.execute(delete(session).where(session.c.digest == digest(cookie)))

    def once(self, name: str) -> str:
        """Make a word that signs a browser in once, within ONCE_SECONDS."""
        word = secrets.token_urlsafe(24)
        with self._lock:
            self._once[digest(word)] = name, time.monotonic() + ONCE_SECONDS
        return word

    def redeem(self, word: str) -> str | None:
        """The cookie for such a word; None: it is none, or was used."""
        with self._lock:
            name, until = self._once.pop(digest(word), ("", 0.0))
        return self._begin(name) if until > time.monotonic() else None


def unknown() -> RefusedError:
    """The refusal of a token that is not known."""
    return RefusedError(
        "this token is not known here: it was never made, has expired, or was revoked",
        status=401,
        headers={"WWW-Authenticate": "Bearer"},
    )


def _valid(connection: Connection, which: object) -> Row | None:
    found = connection.execute(select(token).where(which)).mappings().first()  # type: ignore[arg-type]
    return dict(found) if found and (found["expires"] is None or found["expires"] > time.time()) else None


def _caller(row: Row, csrf: str = "") -> Caller:
    return Caller(row["name"], frozenset(Scope(scope) for scope in row["scopes"].split()), csrf)


def may(scope: Scope) -> Callable[[Request], Caller]:
    """Make the dependency of an endpoint that asks for a scope."""

    def allowed(request: Request) -> Caller:
        """Raises RefusedError."""
        caller: Caller | None = request.app.state.door.caller(request)
        if caller is None:
            told = "this needs a token: send it as `Authorization: Bearer kassay_...`"
            raise RefusedError(told, status=401, headers={"WWW-Authenticate": "Bearer"})
        if scope not in caller.scopes:
            raise RefusedError(f"the token {caller.name!r} has no scope {scope.value!r}")
        if caller.csrf and request.method not in {"GET", "HEAD"} and not same_site(request, caller):
            raise RefusedError("a browser that is signed in must send the word of its forms: X-Csrf")
        request.state.caller = caller.name
        return caller

    return allowed


def same_site(request: Request, caller: Caller, word: str | None = None) -> bool:
    """Whether a request of a browser comes from a page of ours."""
    given = word if word is not None else request.headers.get("x-csrf", "")
    return hmac.compare_digest(given.encode("utf-8", "replace"), caller.csrf.encode())


Reader = Annotated[Caller, Depends(may(Scope.READ))]
Submitter = Annotated[Caller, Depends(may(Scope.SUBMIT))]
Worker = Annotated[Caller, Depends(may(Scope.WORK))]
Admin = Annotated[Caller, Depends(may(Scope.ADMIN))]
