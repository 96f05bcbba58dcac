"""Subjects, effects and receipts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "subject",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("spec_digest", sa.String(71), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("durable", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Integer, nullable=False),
        sa.Column("retired_at", sa.Integer),
        sa.Column("retained_until", sa.Integer),
        sa.Column("tombstoned_at", sa.Integer),
        sa.Column("attention", sa.String(48)),
        sa.Column("attention_kind", sa.String(16)),
        sa.CheckConstraint("epoch > 0", name="epoch_is_positive"),
        sa.CheckConstraint("(state = 'tombstoned') = (tombstoned_at IS NOT NULL)", name="tombstone_has_its_moment"),
    )
    op.create_table(
        "effect",
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("id", sa.String(48), nullable=False, unique=True),
        sa.Column("uuid", sa.String(36), sa.ForeignKey("subject.uuid"), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("action", sa.String(8), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(71), nullable=False),
        sa.Column("credential", sa.String(64), nullable=False),
        sa.Column("intended_at", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(12)),
        sa.Column("reference", sa.Text),
        sa.Column("word", sa.String(48)),
        sa.Column("ended_at", sa.Integer),
        sa.CheckConstraint("action IN ('create', 'delete')", name="action_is_known"),
        sa.CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="outcome_has_its_moment"),
    )
    _unique("one_create", "action = 'create' AND (outcome IS NULL OR outcome <> 'refused')")
    _unique("one_open_delete", "action = 'delete' AND outcome IS NULL")
    op.create_table(
        "receipt",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36)),
        sa.Column("job", sa.String(32), nullable=False),
        sa.Column("at", sa.Integer, nullable=False),
        sa.Column("result", sa.String(16), nullable=False),
        sa.Column("word", sa.String(48), nullable=False),
    )
    op.create_index("effects_of", "effect", ["uuid"])
    op.create_index("receipts_of", "receipt", ["uuid"])


def _unique(name: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "effect", ["uuid", "kind"], unique=True, sqlite_where=where, postgresql_where=where)
