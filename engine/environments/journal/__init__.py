"""The journal of environments: every intent before its effect, every outcome after it, fenced by epochs."""

from engine.environments.journal.database import Database
from engine.environments.journal.journal import Journal, NewSubject
from engine.environments.journal.rows import Action, EffectRow, Outcome, ReceiptRow, State, SubjectRow
from engine.environments.journal.writer import Intent, Writer

__all__ = [
    "Action",
    "Database",
    "EffectRow",
    "Intent",
    "Journal",
    "NewSubject",
    "Outcome",
    "ReceiptRow",
    "State",
    "SubjectRow",
    "Writer",
]
