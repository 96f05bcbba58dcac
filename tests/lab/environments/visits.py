"""What a visitor of an environment sees, through the front, and what lies in its stores afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import psycopg

from engine.environments.hosting import Hosting
from engine.environments.hosting.requests import Requests, host_of
from engine.environments.spec import Specification


@dataclass(frozen=True)
class Visitor:
    """Visits one environment of a fleet."""

    hosting: Hosting
    uuid: str

    @property
    def spec(self) -> Specification:
        return self.hosting.specifications[self.uuid]

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        headers = {"Host": host_of(self.hosting, self.spec), **options.pop("headers", {})}
        url = f"{self.hosting.front_url}{path}"
        return httpx.request(method, url, headers=headers, timeout=30, trust_env=False, **options)

    def health(self) -> dict[str, Any]:
        """Who answers, without the moment of its boot."""
        answer = self.ask("/health").raise_for_status().json()
        assert answer.pop("started")
        return dict(answer)

    def serves(self) -> bool:
        """Whether this environment itself answers."""
        expected = {"environment": self.uuid, "kind": "gateway", "specification": self.spec.digest}
        return self.health() == expected

    def write(self, text: str, token: str | None = None) -> dict[str, Any]:
        """Write a note, with the environment's own token if no other is given."""
        return dict(self.post("/api/notes", {"text": text}, token).raise_for_status().json())

    def invite(self, member: str) -> str:
        """The new token of somebody who may write from now on."""
        return str(self.post("/api/members", {"member": member}).raise_for_status().json()["token"])

    def post(self, path: str, content: dict[str, str], token: str | None = None) -> httpx.Response:
        bearer = token or self.hosting.credentials.ensure(self.uuid).token
        return self.ask(path, "POST", json=content, headers={"Authorization": f"Bearer {bearer}"})

    def notes(self) -> list[str]:
        return [note["text"] for note in self.ask("/api/notes").raise_for_status().json()["notes"]]

    def stored(self) -> dict[str, str]:
        """Every note of the database that it uses, with what the bucket has under the note's key."""
        storage, store = Requests(self.hosting, self.spec).storage, self.hosting.parents.objects
        with self._database() as connection:
            rows = connection.execute("SELECT object, text FROM notes").fetchall()
        for key, text in rows:
            assert store.s3.get_object(Bucket=storage.bucket, Key=key)["Body"].read().decode() == text
        return dict(rows)

    def identities(self) -> list[tuple[str, bool]]:
        with self._database() as connection:
            return connection.execute("SELECT * FROM identities").fetchall()

    def _database(self) -> psycopg.Connection[Any]:
        parent = self.hosting.parents.postgres
        return psycopg.connect(
            host=parent.host,
            port=parent.port,
            user=self.spec.names.role,
            password=self.hosting.credentials.ensure(self.uuid).password,
            dbname=Requests(self.hosting, self.spec).storage.database,
        )
