"""Note which question of a worker a task was the answer to."""

import sqlalchemy as sa
from alembic import op

revision = "v0003"
down_revision = "v0002"


def upgrade() -> None:
    """Add the column."""
    op.add_column("task", sa.Column("question", sa.Text, nullable=False, server_default=""))
