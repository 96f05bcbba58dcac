"""A tenant's conversations on this machine, with prompts that the real runtime wrote."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from engine.conversations import host_script

FORMS = Path(__file__).with_name("prompts")
VERSIONS = ("0.18.1", "0.18.2", "0.19.0")
FOLLOWS = "You run on Hermes Agent (by Nous Research)."
# What the captured prompts were built with; the runtime leaves out the blank line at the end.
OLD = """\
You are the professional assistant of Maple & Daughters Homes.

You work for Ada Maple, who runs the business alone or with a small team.

## How you speak

- Start with the answer.

"""
NEW = "You are the plain-spoken assistant of Maple & Daughters Homes — é.\n\n## How you speak\n\n- Kindly.\n"
SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, system_prompt TEXT, started_at REAL NOT NULL,
    ended_at REAL, title TEXT, archived INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT REFERENCES sessions(id), content TEXT, timestamp REAL);
"""


def form(version: str = "0.19.0") -> str:
    return (FORMS / f"{version}.txt").read_text()


class Tenant:
    """The engine's directory, a personality and a database of a tenant, below one directory of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.personality, self.path = root / "SOUL.md", root / "state.db"
        self.personality.write_text(OLD)
        with self.database() as database:
            database.executescript("PRAGMA journal_mode=WAL;" + SCHEMA)
        self.settings: dict[str, Any] = {
            "personality": str(self.personality),
            "database": str(self.path),
            "follows": FOLLOWS,
            "table": "sessions",
            "id": "id",
            "prompt": "system_prompt",
            "ended": "ended_at",
            "archived": "archived",
            "source": "source",
            "longest_characters": 20_000,
            "resumable_days": 30,
            "sources": ["api_server"],
            "policy": "wait",
            "reset": None,
        }

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The database, committed and closed afterwards, so that it is one file."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            yield connection

    def begin(self, name: str, prompt: str | bytes | None, **more: Any) -> None:
        values = {"source": "api_server", "started_at": 1.5, "ended_at": None, "archived": 0, **more}
        with self.database() as database:
            database.execute(
                "INSERT INTO sessions (id, system_prompt, source, started_at, ended_at, archived, title) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, prompt, values["source"], values["started_at"], values["ended_at"], values["archived"], "é"),
            )
            database.execute("INSERT INTO messages (session_id, content, timestamp) VALUES (?, 'Hello', 1)", (name,))

    def change(self, text: str = NEW) -> None:
        """As a run does: owed first, then the file."""
        host_script.owe(self.settings)
        self.personality.write_text(text)

    def renew(self, **more: Any) -> dict[str, Any]:
        return host_script.renew(self.settings, **more)

    def prompt(self, name: str = "open") -> Any:
        with self.database() as database:
            database.text_factory = bytes
            return database.execute("SELECT system_prompt FROM sessions WHERE id = ?", (name,)).fetchone()[0]

    def rest(self) -> Any:
        """Everything in the database but the prompts."""
        with self.database() as database:
            return [
                database.execute("SELECT id, source, started_at, ended_at, title, archived FROM sessions").fetchall(),
                database.execute("SELECT * FROM messages").fetchall(),
                database.execute("SELECT sql FROM sqlite_master").fetchall(),
            ]

    def owed(self) -> Any:
        return json.loads((self.root / "owed.json").read_text())
