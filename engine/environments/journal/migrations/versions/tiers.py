"""Which tier an environment is a member of, read from the specifications that were recorded."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("subject", sa.Column("tier", sa.String(36)))
    op.create_index("members_of", "subject", ["tier"])
    subject = sa.table("subject", sa.column("uuid"), sa.column("kind"), sa.column("spec"), sa.column("tier"))
    connection = op.get_bind()
    rows = connection.execute(sa.select(subject.c.uuid, subject.c.spec).where(subject.c.kind == "env")).all()
    for row in rows:
        storage = json.loads(row.spec).get("storage", "own")
        if storage != "own":
            connection.execute(sa.update(subject).where(subject.c.uuid == row.uuid).values(tier=storage))
