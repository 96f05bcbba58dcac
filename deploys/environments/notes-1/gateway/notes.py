"""Notes, each of them a row in the database and an object in the bucket."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from typing import Any

from service import Handler, Service

BODY_LIMIT_BYTES = 65536
SHOWN = 100

_MEMBER = re.compile(r"[a-z0-9][a-z0-9@._+-]{0,99}\Z", re.ASCII)


class GatewayService(Service):
    """Who may write: whoever shows the environment's own token, an administrator, and where the policy is to invite
    also an approved member. Identities, approvals and tokens are in the database, so a tier's members share them.
    """

    def token_of(self, bearer: str) -> str | None:
        """What a bearer is: "own", "administrator", "member" or nothing."""
        if hmac.compare_digest(bearer.encode(), self.document["token"].encode()):
            return "own"
        query = """SELECT administrator, EXISTS (SELECT FROM approvals WHERE approvals.member = tokens.member)
                   FROM tokens JOIN identities USING (member) WHERE digest = %s"""
        with self.database.work() as cursor:
            cursor.execute(query, (digest(bearer),))
            administrator, approved = cursor.fetchone() or (False, False)
        if administrator:
            return "administrator"
        return "member" if approved else None

    def may_write(self, bearer: str) -> bool:
        policy = self.document["binding"]["access_policy"]
        if policy == "public":
            return True
        return self.token_of(bearer) in (
            ("own", "administrator", "member") if policy == "invited" else ("own", "administrator")
        )

    def invite(self, member: str) -> str:
        """A new token of `member`, who is known and approved from now on."""
        token = secrets.token_urlsafe(32)
        with self.database.work() as cursor:
            cursor.execute("INSERT INTO identities VALUES (%s, false) ON CONFLICT DO NOTHING", (member,))
            cursor.execute("INSERT INTO approvals VALUES (%s) ON CONFLICT DO NOTHING", (member,))
            cursor.execute("INSERT INTO tokens VALUES (%s, %s)", (digest(token), member))
        return token

    def write(self, text: str) -> dict[str, Any]:
        key = f"notes/{secrets.token_hex(16)}"
        # The object first: a row always leads to its object.
        self.bucket.put(key, text.encode())
        with self.database.work() as cursor:
            cursor.execute("INSERT INTO notes (object, text) VALUES (%s, %s) RETURNING id", (key, text))
            return {"id": cursor.fetchone()[0], "object": key, "text": text}

    def notes(self) -> list[dict[str, Any]]:
        with self.database.work() as cursor:
            cursor.execute("SELECT id, object, text FROM notes ORDER BY id DESC LIMIT %s", (SHOWN,))
            return [dict(zip(("id", "object", "text"), row, strict=True)) for row in cursor.fetchall()]


class Gateway(Handler):
    service: GatewayService

    def do_GET(self) -> None:
        match self.path:
            case "/health":
                self.health()
            case "/api/notes":
                self.answer(200, {"notes": self.service.notes()})
            case _:
                self.answer(404, {"error": "notFound"})

    def do_POST(self) -> None:
        body = self.body()
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        match self.path, body:
            case _, None:
                self.answer(422, {"error": "badBody"})
            case "/api/notes", {"text": str(text)} if "\0" not in text:
                allowed = self.service.may_write(bearer)
                self.answer(201, self.service.write(text)) if allowed else self.answer(401, {"error": "denied"})
            case "/api/members", {"member": str(member)} if _MEMBER.match(member):
                allowed = self.service.token_of(bearer) in ("own", "administrator")
                self.answer(201, {"token": self.service.invite(member)}) if allowed else self.answer(
                    401, {"error": "denied"}
                )
            case (("/api/notes" | "/api/members"), _):
                self.answer(422, {"error": "badBody"})
            case _:
                self.answer(404, {"error": "notFound"})

    def body(self) -> Any:
        """The JSON of the request, None for what is none."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_LIMIT_BYTES:
            self.close_connection = True
            return None
        try:
            return json.loads(self.rfile.read(int(length)))
        except ValueError:
            return None


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
