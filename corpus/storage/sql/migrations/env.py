"""Runs migrations for database.py, which lends its connection; Alembic loads this file by its path.

To add a step: change tables.py, write versions/vNNNN_<words>.py with the next number as `revision`, the one before as
`down_revision`, and an upgrade() that makes the same change; a test compares the two. A step that was released is
never changed again.
"""

from alembic import context

if __name__ == "env_py":  # loaded by Alembic, not imported
    context.configure(connection=context.config.attributes["connection"])
    with context.begin_transaction():
        context.run_migrations()
