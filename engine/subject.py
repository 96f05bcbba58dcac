"""What locks and records are keyed by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Subject:
    """One thing that at most one job may mutate at a time, such as ``tenant/maple``."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"
