"""What a job's run says about it, what of that its operator knows, and what is to be told."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.errors import RecordFailed
from engine.records.atomic import replace_file

_VARYING = re.compile(r"[\w./:+-]*\d[\w./:+-]*")


@dataclass(frozen=True)
class Failure:
    """How a job failed: its exit code (a negative one is the signal that ended it) and its own error lines."""

    exit_code: int
    lines: tuple[str, ...]

    def key(self, names: Collection[str]) -> str:
        """The same for the same failure at another time; of the words with digits, only `names` count."""

        def steady(found: re.Match[str]) -> str:
            return found.group() if found.group().rstrip(":") in names else "#"

        lines = sorted({_VARYING.sub(steady, line) for line in self.lines})
        return hashlib.sha256("\n".join((str(self.exit_code), *lines)).encode(errors="replace")).hexdigest()[:16]

    @property
    def ending(self) -> str:
        return f"exit {self.exit_code}" if self.exit_code >= 0 else f"ended by signal {-self.exit_code}"


class Knowledge(StrEnum):
    """What the operator was told last; UNCERTAIN where the last message may not have arrived."""

    NOTHING = "nothing"
    WORKS = "works"
    FAILURE = "failure"
    UNCERTAIN = "uncertain"


class News(StrEnum):
    """What the operator does not know yet."""

    FAILED = "failed"
    CHANGED = "changed"
    RECOVERED = "recovered"


@dataclass(frozen=True)
class Contact:
    """Whom to tell, and how: `target` is a secret reference to an Apprise URL, None for nobody."""

    target: str | None = None
    age_identity: str = ""
    command_seconds: float = 30
    brand: str = "Tenantry"
    limit: int = 1000


@dataclass(frozen=True)
class Report:
    """The last run of a job. `failure` is its failure's key; `told_failure` the one that the operator was told of.

    `contact` stays for the night when the settings cannot be read. `failing_since` and `lines` are of the last failure.
    """

    job: str
    finished_at: str
    exit_code: int
    failure: str | None = None
    failing_since: str | None = None
    lines: tuple[str, ...] = ()
    told: Knowledge = Knowledge.NOTHING
    told_failure: str | None = None
    contact: Contact = Contact()

    def news(self) -> News | None:
        """What has to be told, by what the operator knows already."""
        if self.failure is None:
            return News.RECOVERED if self.told in (Knowledge.FAILURE, Knowledge.UNCERTAIN) else None
        if self.told is Knowledge.FAILURE:
            return None if self.told_failure == self.failure else News.CHANGED
        return News.FAILED


def read_report(path: Path) -> Report | None:
    """The report in a file, None before the first run; one that cannot be read counts as none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        document |= {
            "lines": tuple(document["lines"]),
            "told": Knowledge(document["told"]),
            "contact": Contact(**document["contact"]),
        }
        return Report(**document)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordFailed(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, TypeError, KeyError):
        return None


def write_report(path: Path, report: Report) -> None:
    """Replace the file; raises :class:`RecordFailed`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise RecordFailed(f"cannot make the directory: {error.strerror}", where=str(path.parent)) from error
    replace_file(path, (json.dumps(asdict(report), indent=2) + "\n").encode())


def error_lines(output: Sequence[str]) -> tuple[str, ...]:
    """The errors among the last lines that a command printed, or its very last lines if it named none."""
    errors = tuple(line.removeprefix("error: ") for line in output if line.startswith(("error: ", "internal error: ")))
    return errors or tuple(line for line in output if line.strip())[-3:]
