"""Tables of the server: jobs and their tasks, workers, projects, tokens, the life of findings, what happened.

Times are seconds since 1970, UTC. Records are JSON text of ASCII characters only: no database refuses a character.
"""

from sqlalchemy import Boolean, Column, Double, Index, Table, Text, UniqueConstraint, text

from kernel_assay.corpus.storage.sql.tables import Number, metadata

_QUEUED, _HELD = text("state = 'queued'"), text("state IN ('leased', 'running')")


def _number(name: str, default: int = 0) -> Column[int]:
    return Column(name, Number, nullable=False, server_default=str(default))


def _words(name: str, default: str = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=default)


def _serial() -> Column[int]:
    """A column that grows; lists are in its order, and paged by it."""
    return Column("seq", Number, primary_key=True, autoincrement=True)


job = Table(
    "job",
    metadata,
    _serial(),
    Column("id", Text, nullable=False, unique=True),
    _words("kind"),
    Column("project", Text),
    _words("share"),
    Column("request", Text, nullable=False),
    _words("sources"),
    _words("finding"),
    _words("content"),
    _number("priority"),
    Column("deadline", Double),
    _words("owner"),
    Column("key", Text),
    _words("state", "queued"),
    _number("attempts"),
    _words("worker"),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("ended", Double),
    _words("reason"),
    _words("progress", "{}"),
    _words("verdict"),
    _words("message"),
    _words("found"),
    _words("commit_id"),
    _words("environment"),
    _number("seed"),
    _number("parts", 1),
    _number("handed", 1),
    _number("open_tasks", 1),
    _number("log_bytes"),
    UniqueConstraint("owner", "key"),
    Index("ix_job_content", "content"),
    Index("ix_job_state_seq", "state", "seq"),
    Index("ix_job_project_seq", "project", "seq"),
)
"""share: for whom it is done, of those among whom the workers are shared. content: a digest of all that decides its
answer. parts: tasks it has in all; handed: those that were made so far; open_tasks: those of them that are not over."""

task = Table(
    "task",
    metadata,
    _serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("job", Text, nullable=False, index=True),
    _words("kind"),
    _words("device", "cpu"),
    _number("place"),
    _number("rank"),
    _number("tag"),
    Column("deadline", Double),
    _words("state", "queued"),
    _number("epoch"),
    _number("attempts"),
    Column("until", Double),
    _words("worker"),
    _words("question"),
    _words("progress", "{}"),
    Index("ix_task_queue", "device", "rank", "tag", "seq", sqlite_where=_QUEUED, postgresql_where=_QUEUED),
    Index(
        "ix_task_deadline",
        "deadline",
        sqlite_where=text("deadline IS NOT NULL"),
        postgresql_where=text("deadline IS NOT NULL"),
    ),
    Index("ix_task_until", "until", sqlite_where=_HELD, postgresql_where=_HELD),
)
"""place: which part of its job. rank: 9 less its priority, the lowest comes first. tag: its turn among those of one
rank (schedule.py). question: of the worker, which it was the answer to. progress: of one that has ended, the id of its
outcome."""

share = Table("share", metadata, Column("name", Text, primary_key=True), _number("tag"))
"""For whom tasks were queued, and the last turn each of them was given."""

source = Table("source", metadata, Column("digest", Text, primary_key=True), Column("record", Text, nullable=False))

artifact = Table(
    "artifact",
    metadata,
    Column("job", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

log = Table(
    "log", metadata, _serial(), Column("job", Text, nullable=False, index=True), Column("body", Text, nullable=False)
)

worker = Table(
    "worker",
    metadata,
    Column("name", Text, primary_key=True),
    _words("devices", "[]"),
    _words("kinds", "[]"),
    _words("environment", "{}"),
    _words("token"),
    Column("first_seen", Double, nullable=False),
    Column("seen", Double, nullable=False),
    Column("drain", Boolean, nullable=False, server_default=text("false")),
    Column("local", Boolean, nullable=False, server_default=text("false")),
)

project = Table(
    "project",
    metadata,
    Column("name", Text, primary_key=True),
    Column("record", Text, nullable=False),
    _words("head"),
    Column("created", Double, nullable=False),
    Column("fuzzed", Double),
)

life = Table(
    "life",
    metadata,
    _serial(),
    _words("project"),
    Column("finding", Text, nullable=False),
    _words("op"),
    _words("subject"),
    _words("kind"),
    _words("dtype"),
    _words("title"),
    _words("state", "new"),
    Column("since", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("seen", Double, nullable=False),
    _number("times", 1),
    _words("reason"),
    Column("until", Double),
    _words("job"),
    _words("seen_commit"),
    _words("fixed_commit"),
    _words("brought_by"),
    UniqueConstraint("finding", "project"),
    Index("ix_life_state_seq", "state", "seq"),
    Index("ix_life_project_seq", "project", "seq"),
    Index("ix_life_op_seq", "op", "seq"),
)
"""A finding as the service sees it: whose it is, what became of it and when; the record itself is the store's."""

event = Table(
    "event",
    metadata,
    _serial(),
    Column("at", Double, nullable=False),
    _words("who"),
    _words("what"),
    _words("noun"),
    _words("about"),
    Column("project", Text),
    _words("words"),
    Column("told", Double),
    Index("ix_event_about_seq", "about", "seq"),
    Index("ix_event_told", "told"),
)
"""What happened, to what, by whom; told: when people were told of it."""

token = Table(
    "token",
    metadata,
    Column("name", Text, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    _words("scopes"),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("used", Double),
)

session = Table(
    "session",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("token", Text, nullable=False),
    _words("csrf"),
    Column("expires", Double, nullable=False),
)
"""Browsers that are signed in."""


def metadata_tables() -> tuple[Table, ...]:
    """All tables of the server."""
    return (job, task, share, source, artifact, log, worker, project, life, event, token, session)
