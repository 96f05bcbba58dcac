"""How Alembic reaches the journal: over the connection, and in the transaction, of whoever opens it."""

from __future__ import annotations

from alembic import context

from engine.environments.journal.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
