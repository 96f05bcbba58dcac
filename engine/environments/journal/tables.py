"""The journal's tables. A change of them is a migration in `migrations/versions` as well; a test compares the two."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text, text

METADATA = MetaData()

REVISION = "0002"
"""The newest migration; a journal that is at it is opened without Alembic."""

SUBJECT = Table(
    "subject",
    METADATA,
    Column("uuid", String(36), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("spec_digest", String(71), nullable=False),
    Column("spec", Text, nullable=False),
    Column("durable", Integer, nullable=False),
    # Moments are whole microseconds since 1970 in UTC: exact to compare, and the same in every database.
    Column("created_at", Integer, nullable=False),
    Column("retired_at", Integer),
    Column("retained_until", Integer),
    Column("tombstoned_at", Integer),
    Column("attention", String(48)),
    Column("attention_kind", String(16)),
    # The uuid of the tier whose storage an environment uses.
    Column("tier", String(36)),
    CheckConstraint("epoch > 0", name="epoch_is_positive"),
    CheckConstraint("(state = 'tombstoned') = (tombstoned_at IS NOT NULL)", name="tombstone_has_its_moment"),
)

MEMBERS_OF = Index("members_of", SUBJECT.c.tier)

EFFECT = Table(
    "effect",
    METADATA,
    Column("sequence", Integer, primary_key=True),
    Column("id", String(48), nullable=False, unique=True),
    Column("uuid", String(36), ForeignKey("subject.uuid"), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("action", String(8), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", String(64), nullable=False),
    Column("digest", String(71), nullable=False),
    Column("credential", String(64), nullable=False),
    Column("intended_at", Integer, nullable=False),
    Column("outcome", String(12)),
    Column("reference", Text),
    Column("word", String(48)),
    Column("ended_at", Integer),
    CheckConstraint("action IN ('create', 'delete')", name="action_is_known"),
    CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", name="outcome_has_its_moment"),
)

# What no code may do by mistake, the database refuses: a second create of a resource unless the first provably did
# nothing, and a second delete while the outcome of one is not known.
ONE_CREATE = Index(
    "one_create",
    EFFECT.c.uuid,
    EFFECT.c.kind,
    unique=True,
    sqlite_where=text("action = 'create' AND (outcome IS NULL OR outcome <> 'refused')"),
    postgresql_where=text("action = 'create' AND (outcome IS NULL OR outcome <> 'refused')"),
)
ONE_OPEN_DELETE = Index(
    "one_open_delete",
    EFFECT.c.uuid,
    EFFECT.c.kind,
    unique=True,
    sqlite_where=text("action = 'delete' AND outcome IS NULL"),
    postgresql_where=text("action = 'delete' AND outcome IS NULL"),
)

EFFECTS_OF = Index("effects_of", EFFECT.c.uuid)

RECEIPT = Table(
    "receipt",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("uuid", String(36)),
    Column("job", String(32), nullable=False),
    Column("at", Integer, nullable=False),
    Column("result", String(16), nullable=False),
    Column("word", String(48), nullable=False),
)

RECEIPTS_OF = Index("receipts_of", RECEIPT.c.uuid)
