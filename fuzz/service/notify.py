"""Tells people of findings: once for each standing that one enters, many in one message, through Apprise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.storage.sql.service_tables import event, life
from kernel_assay.fuzz.service.problems import MissingError
from kernel_assay.fuzz.service.protocol import OVER, UNSEARCHED, Standing
from kernel_assay.fuzz.service.queue import jobs, upkeep
from kernel_assay.fuzz.service.queue.database import Row, ServerDatabase
from kernel_assay.reports.words import count

LOG = logging.getLogger("kassay.service")
TOLD = (Standing.NEW, Standing.REOPENED, Standing.FIXED)
"""Standings that people are told of."""
QUIET = 86_400.0
"""Seconds for which nobody is told again that a finding has entered the same state."""
MOST = 20
"""Findings of a message that are named."""
MOST_STATUS = 140
"""Characters that a forge takes of what is said of a commit."""
Send = Callable[[Sequence[str], str, str], bool]


def send(addresses: Sequence[str], title: str, body: str) -> bool:
    """Send by Apprise; whether all addresses took it."""
    import apprise  # noqa: PLC0415  half a second, of servers that tell somebody

    messenger = apprise.Apprise()
    for address in addresses:
        messenger.add(address)
    return bool(messenger.notify(title=title, body=body))


def check_addresses(addresses: Iterable[str]) -> None:
    """Raises UsageError for an address that Apprise does not know."""
    import apprise  # noqa: PLC0415  see above

    for address in addresses:
        if not apprise.Apprise().add(address):
            kind = address.partition(":")[0][:20]
            raise UsageError(f"an address of kind {kind!r} is none that Apprise can send to (json://, mailto://, ...)")


class Notifier:
    """Sends what has happened, `digest_seconds` after it did."""

    def __init__(
        self, database: ServerDatabase, everybody: Sequence[str], address: str, digest_seconds: float, by: Send = send
    ) -> None:
        """everybody: addresses that are told of all projects; address: of the server, for links."""
        self.database, self.everybody, self.address = database, tuple(everybody), address
        self.digest_seconds, self._send = digest_seconds, by

    def tell(self, now: float) -> int:
        """Send what is due, a message a project; how many were sent.

        What is sent is marked before: an address that does not answer loses a message, and is not flooded.
        """
        with self.database.reading() as connection:
            first = connection.scalar(_asked(event.c.at).limit(1))
        if first is None or now - first < self.digest_seconds:
            return 0
        with self.database.writing() as connection:
            rows = [dict(row) for row in connection.execute(_asked(event)).mappings()]
            connection.execute(update(event).where(event.c.seq.in_([row["seq"] for row in rows])).values(told=0.0))
            rows = _not_told(connection, [row for row in rows if row["project"]], now)
            connection.execute(update(event).where(event.c.seq.in_([row["seq"] for row in rows])).values(told=now))
            messages = list(self._messages(connection, rows))
        return sum(self._sent(*message) for message in messages)

    def _messages(self, connection: Connection, rows: Sequence[Row]) -> Iterable[tuple[Sequence[str], str, str]]:
        projects = {told.name: told.project.notify for told in upkeep.projects(connection)}
        for name in sorted({row["project"] or "" for row in rows}):
            addresses = (*self.everybody, *projects.get(name, ()))
            mine = [row for row in rows if (row["project"] or "") == name]
            if addresses:
                yield addresses, *self._message(connection, name, mine)

    def _message(self, connection: Connection, project: str, rows: Sequence[Row]) -> tuple[str, str]:
        latest = {row["about"]: row for row in rows}.values()
        said = [f"{number} {what}" for what in TOLD if (number := sum(row["what"] == what for row in latest))]
        titles = select(life.c.finding, life.c.title, life.c.subject).where(
            life.c.finding.in_([row["about"] for row in latest]), life.c.project == project
        )
        named = {row.finding: f"{row.subject}: {row.title}" for row in connection.execute(titles)}
        lines = [f"{row['what']}  {named.get(row['about'], '')}\n{self._link(row)}" for row in list(latest)[:MOST]]
        more = [f"and {len(latest) - MOST} more: {self.address}/findings"] if len(latest) > MOST else []
        where = f" in {project}" if project else ""
        return f"Kernel Assay{where}: {count(len(latest), 'finding')} ({', '.join(said)})", "\n\n".join([*lines, *more])

    def _link(self, row: Row) -> str:
        of = f"?project={row['project']}" if row["project"] else ""
        return f"{self.address}/findings/{row['about']}{of}"

    def _sent(self, addresses: Sequence[str], title: str, body: str) -> bool:
        try:
            if self._send(addresses, title, body):
                return True
            LOG.warning("not all who are told of findings could be reached: %s", title)
        except Exception:  # a service of somebody else's
            LOG.exception("telling of findings failed: %s", title)
        return False


def _not_told(connection: Connection, rows: Sequence[Row], now: float) -> list[Row]:
    """Leave out what was told within QUIET: a finding that comes and goes is told of once a day."""
    asked = select(event.c.about, event.c.project, event.c.what).where(event.c.told > now - QUIET)
    told = {tuple(row) for row in connection.execute(asked)}
    return [row for row in rows if (row["about"], row["project"], row["what"]) not in told]


def _asked(what: Any) -> Any:
    due = select(what).where(event.c.told.is_(None), event.c.noun == "finding", event.c.what.in_(list(TOLD)))
    return due.order_by(event.c.seq)


def commit_status(connection: Connection, project: str, commit: str, address: str, forge: str) -> dict[str, str]:
    """The payload of a commit status, as GitHub or GitLab takes it. Raises MissingError for an unknown project."""
    told = upkeep.project_of(connection, project)
    found = [one for one in jobs.of_commit(connection, project, commit) if one["kind"] in {"verify", "fuzz"}]
    if not found:
        raise MissingError(f"no job of the project {project!r} is about {commit[:12]}")
    last = {jobs.root_of(one["key"]): one for one in found}.values()  # one that was tried again stands for it
    waits = sum(one["state"] not in OVER for one in last)
    undone = [one["reason"] for one in last if one["state"] in upkeep.UNDONE]
    unsearched = [one["message"].partition(UNSEARCHED)[2] for one in last if one["kind"] == "fuzz"]
    unsearched = [words for words in unsearched if words]
    let_be = set(connection.scalars(select(life.c.finding).where(life.c.project == project, life.c.state == "wontfix")))
    bad = {name for one in found if one["verdict"] in {"wrong", "fails", "flaky"} for name in one["found"].split()}
    bad |= {one["finding"] for one in found if one["verdict"] in {"fails", "flaky"}}
    bad -= let_be
    if waits:
        state, said = "pending", f"{waits} of {count(len(last), 'job')} to go"
    elif bad:
        rest = f", {count(len(undone), 'job')} not done" if undone else ""
        rest += "; not all was searched" if unsearched else ""
        state, said = "failure", f"{count(len(bad), 'finding')}{rest}"
    elif undone or unsearched:
        what = f"{count(len(undone), 'job')} not done" if undone else "not all was searched"
        state, said = "error", f"{what}: {[*undone, *unsearched][0]}"[:MOST_STATUS].rstrip(": ")
    else:
        declined = {one["finding"] for one in found if one["kind"] == "verify" and one["verdict"] == "declined"}
        gone = len(declined - let_be)
        rest = f"; {count(gone, 'finding')} of kernels that are gone" if gone else ""
        state, said = "success", f"{count(len(last), 'job')} done, nothing found{rest}"
    link = {"target_url": f"{address}/projects/{told.name}", "description": said}
    if forge == "gitlab":
        name = {"failure": "failed", "error": "failed", "pending": "running"}.get(state, state)
        return {"state": name, "name": "kassay", **link}
    return {"state": state, "context": "kassay", **link}
