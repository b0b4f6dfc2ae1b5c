"""Note which workers take repositories that are paths on their machines."""

import sqlalchemy as sa
from alembic import op

revision = "v0004"
down_revision = "v0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("worker", sa.Column("local", sa.Boolean, nullable=False, server_default=sa.text("false")))
