"""Create the tables of findings, runs and what belongs to them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "v0001"
down_revision: str | None = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _columns(kind: Any, *names: str) -> list[Any]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _texts(*names: str) -> list[Any]:
    return _columns(sa.Text, *names)


def _numbered(table: str) -> list[Any]:
    number = sa.Column("number", _NUMBER, nullable=False, autoincrement=True)
    return [number, sa.PrimaryKeyConstraint("number", name=f"pk_{table}")]


def _keyed(table: str, *names: str) -> list[Any]:
    return [*_texts("project", *names), sa.PrimaryKeyConstraint("project", *names, name=f"pk_{table}")]


def upgrade() -> None:
    """Create the tables of findings, runs and what belongs to them."""
    op.create_table(
        "findings",
        *_keyed("findings", "id"),
        *_texts("op", "subject", "kind", "dtype", "signature", "state", "expect"),
        *_columns(sa.Boolean, "seeded"),
        *_columns(sa.BigInteger, "count"),
        *_texts("first_seen", "last_seen", "record"),
    )
    for column in ("op", "state", "last_seen"):
        op.create_index(f"ix_findings_project_{column}", "findings", ["project", column])
    op.create_table("regressions", *_keyed("regressions", "path"), *_texts("op", "finding", "record"))
    op.create_table(
        "seeds",
        *_numbered("seeds"),
        *_texts("project", "op", "id", "record"),
        sa.UniqueConstraint("project", "op", "id", name="uq_seeds_project_op_id"),
    )
    op.create_table(
        "runs",
        *_keyed("runs", "run"),
        *_texts("started", "updated"),
        *_columns(sa.Boolean, "finished"),
        *_columns(sa.BigInteger, "next_index", "cases", "judged"),
        *_texts("record"),
    )
    op.create_index("ix_runs_project_updated", "runs", ["project", "updated"])
    op.create_table("journals", *_numbered("journals"), *_texts("project", "run", "kind", "record"))
    op.create_index("ix_journals_project_run_kind_number", "journals", ["project", "run", "kind", "number"])
    op.create_table("kept", *_keyed("kept", "name"), *_columns(sa.BigInteger, "size"), *_texts("record"))
    op.create_table("proofs", *_keyed("proofs", "op", "subject"), *_texts("at", "record"))
    op.create_table("timings", *_keyed("timings", "run"), *_texts("record"))
