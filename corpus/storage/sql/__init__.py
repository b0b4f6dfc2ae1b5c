"""A corpus in a database: tables, migrations, and the store that stands on them."""
