"""What a restore would change on a tenant, file by file; nothing is touched and no lock is taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backups.choice import Chosen
from engine.backups.listing import below
from engine.backups.unpack import look
from engine.hosts.session import Session
from engine.recovery.assembly import assembled
from engine.registry.model import Tenant

COMPARE = Path(__file__).with_name("compare_script.py").read_text()
LIMIT = 5000


@dataclass(frozen=True)
class Finding:
    """One path; `now` and `then` are its digest or kind on the tenant and in the archive, None where it is absent."""

    path: str
    now: str | None
    then: str | None


@dataclass(frozen=True)
class Difference:
    """At most `LIMIT` findings of each sort; `counts` has how many there are."""

    slug: str
    archive: str
    version: str | None
    added: tuple[Finding, ...]
    changed: tuple[Finding, ...]
    removed: tuple[Finding, ...]
    counts: dict[str, int]

    def document(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "archive": self.archive,
            "version": self.version,
            **{
                sort: [{"path": item.path, "now": item.now, "then": item.then} for item in findings]
                for sort, findings in (("added", self.added), ("changed", self.changed), ("removed", self.removed))
            },
            "counts": self.counts,
        }


def difference(tenant: Tenant, session: Session, chosen: Chosen) -> Difference:
    """Compare the tenant's files with the archive's: those that a restore of it would replace."""
    found = look(session, chosen.places)
    trees = chosen.trees(found.live, session.settings)
    expected = {path: member for tree in trees for path, member in below(chosen.listing, tree.path)}
    answer = session.run_script(
        assembled(COMPARE),
        {
            "trees": [{"path": tree.path, "exclude": list(tree.exclude)} for tree in trees],
            "expected": {path: member.document() for path, member in expected.items()},
            "limit": LIMIT,
        },
        label="compare with the archive",
    )
    lists = {sort: tuple(Finding(**item) for item in answer[sort]) for sort in ("added", "changed", "removed")}
    return Difference(tenant.slug, chosen.archive, chosen.manifest.version, **lists, counts=answer["counts"])
