"""Settings of a server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from kernel_assay.corpus.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """One server. Raises UsageError, one sentence, for settings that make no sense or that let anybody in."""

    database: str
    """URL: `sqlite:///FILE` or `postgresql://...`."""
    host: str = "127.0.0.1"
    port: int = 8765
    certificate: Path | None = None
    private_key: Path | None = None
    insecure: bool = False
    """Whether tokens may travel in the clear to other machines."""
    public: bool = False
    """Whether anybody may read."""
    url: str = ""
    """Its address as people see it, in links; empty: by host and port."""
    notify: tuple[str, ...] = field(default=(), repr=False)
    """Addresses of Apprise that are told of findings."""
    digest_seconds: float = 60.0
    """What happens within so many seconds is told in one message."""
    retention_days: float = 90.0
    """Logs, texts and tasks of jobs that ended earlier are removed."""
    engine: tuple[str, ...] = ()
    """The worker that is started along: its name, and options of `kassay work`; empty: none."""
    rate: float = 200.0
    """Requests a second of one token or address, on average; 0: no limit."""

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if (self.certificate is None) != (self.private_key is None):
            raise UsageError("--tls-cert and --tls-key go together")
        for path in filter(None, (self.certificate, self.private_key)):
            if not path.is_file():
                raise UsageError(f"{path} is no file")
        if not (self.is_local or self.certificate or self.insecure):
            raise UsageError(
                f"{self.host} is not this machine alone, and tokens would travel in the clear: give --tls-cert and "
                "--tls-key, or say --insecure if something else in front of the server does TLS"
            )

        if "--ray" in self.engine and self.host in {"0.0.0.0", "::"} and not self.url:  # noqa: S104  compared, and not listened at
            raise UsageError(f"--engine ray needs --url: nodes of the cluster cannot ask for {self.host}")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by https."""
        return self.certificate is not None or self.url.startswith("https://")

    @property
    def address(self) -> str:
        """Address as people see it, without a slash at the end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.url.rstrip("/") or f"{'https' if self.certificate else 'http'}://{host}:{self.port}"
