"""Guards in front of all endpoints: sizes, rates, headers, and a line in the log for each request."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_assay.fuzz.service.auth import digest
from kernel_assay.fuzz.service.metrics import Metrics
from kernel_assay.fuzz.service.problems import problem

LOG = logging.getLogger("kassay.service")
KB, MB = 1 << 10, 1 << 20
SIZES = (
    (re.compile(r"/v1/tasks/[^/]+/outcome"), 48 * MB),
    (re.compile(r"/v1/(jobs|judge)"), 16 * MB),
    (re.compile(r"/v1/tasks/[^/]+/heartbeat"), 512 * KB),
    (re.compile(r""), 256 * KB),
)
"""Bytes of a body, by the beginning of the path; the first that fits."""
HEADERS = {
    b"content-security-policy": b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
BURST_SECONDS = 10.0
"""For how long the average may be exceeded tenfold: the bucket holds this many seconds of it."""
MOST_CALLERS = 10_000
OF_ADDRESS = 0.1
"""Cost of a request to its address: an address may ask for as much as ten tokens may."""


class Rates:
    """A bucket for each caller, filled at an even rate; the least recent are forgotten."""

    def __init__(self, rate: float) -> None:
        """rate: requests a second; 0: no limit."""
        self.rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, now: float, cost: float = 1.0) -> float:
        """Seconds until this caller may ask again; 0: now, and it is counted."""
        if not self.rate:
            return 0.0
        level, at = self._buckets.pop(who, (self.rate * BURST_SECONDS, now))
        level = min(self.rate * BURST_SECONDS, level + (now - at) * self.rate)
        allowed = level >= cost
        self._buckets[who] = (level - cost if allowed else level), now
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (cost - level) / self.rate


class Guards:
    """The middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics, rate: float = 0.0, *, secure: bool = False) -> None:
        """rate: requests a second of one caller; secure: whether browsers come by https."""
        self.metrics = metrics
        self.app, self.rates = app, Rates(rate)
        extra = {b"strict-transport-security": b"max-age=31536000"} if secure else {}
        self._headers = {**HEADERS, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse what is too large or too often; else pass it on, and note what came of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = _Call(self, scope, receive, send)
        if refused := call.refusal():
            await refused(scope, receive, call.send)
        else:
            await self.app(scope, call.receive, call.send)
        call.log()

    def headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Add those that every answer has; what an endpoint says itself stays."""
        said = list(given)
        names = {name.lower() for name, _ in said}
        return [*said, *((name, value) for name, value in self._headers.items() if name not in names)]


class _Call:
    """One request on its way."""

    def __init__(self, guards: Guards, scope: Scope, receive: Receive, send: Send) -> None:
        self.guards, self.scope = guards, scope
        self._receive, self._send = receive, send
        self.began, self.status, self.got, self.started = time.monotonic(), 0, 0, False
        self.most = next(size for path, size in SIZES if path.match(scope["path"]))
        self.given = {name.lower(): value for name, value in scope["headers"]}

    def refusal(self) -> Any:
        """An answer that refuses; None: it may go on."""
        if "\0" in self.scope["path"] or b"%00" in self.scope.get("query_string", b""):
            return problem(400, "an address has no character NUL")
        if self.given.get(b"content-encoding", b"identity") != b"identity":
            return problem(415, "bodies are sent as they are, not compressed")
        length = self.given.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            return problem(400, "the content-length is no number")
        if int(length) > self.most:
            return problem(
                413, f"a body here has at most {self.most >> 10:,} kB, and this one has {int(length):,} bytes"
            )
        return self._too_often()

    def _too_often(self) -> Any:
        address = (self.scope.get("client") or ("unknown",))[0]
        secret = self.given.get(b"authorization", b"").decode("latin-1")
        now, wait = time.monotonic(), self.guards.rates.wait
        waits = max(wait(digest(secret) if secret else f"no token, {address}", now), wait(address, now, OF_ADDRESS))
        if self.scope["path"] in {"/healthz", "/readyz"} or not waits:
            return None
        after = {"Retry-After": str(int(waits) + 1)}
        return problem(429, f"too many requests; ask again in {int(waits) + 1} s", after)

    async def receive(self) -> Message:
        """Count what comes in, and cut off what is too large: whoever did not say so was not refused before."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.got += len(message.get("body", b""))
            if self.got > self.most:
                raise HTTPException(413, f"a body here has at most {self.most >> 10:,} kB")
        return message

    async def send(self, message: Message) -> None:
        """Add headers, and look at the status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self.guards.headers(message.get("headers", ()))}
        await self._send(message)

    def log(self) -> None:
        """Write the line of this request."""
        state = self.scope.get("state", {})
        said = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": self.status,
            "ms": round((time.monotonic() - self.began) * 1000, 1),
            "who": state.get("caller", ""),
            "from": (self.scope.get("client") or ("",))[0],
        }
        LOG.info(json.dumps(said))
        self.guards.metrics.note(self.scope["method"], self.status, time.monotonic() - self.began)
