"""The record of runs on the operator's machine: a log for people, never a source of truth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.clock import Clock, iso
from engine.errors import RecordFailed
from engine.records.atomic import append_line, replace_file
from engine.subject import Subject


class RunResult(StrEnum):
    """How a run ended, or that it has not."""

    RUNNING = "running"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    ROLLED_BACK = "rolled-back"
    BACKED_UP = "backed-up"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    DEFERRED = "deferred"
    BUSY = "busy"
    RESTORED = "restored"
    REHEARSED = "rehearsed"


@dataclass(frozen=True)
class RunState:
    """One run as its state file says it. Versions are texts; times are UTC ISO 8601."""

    run: str
    job: str
    subject: str
    process: int
    started_at: str
    finished_at: str | None = None
    phase: str = "probe"
    from_version: str | None = None
    to_version: str | None = None
    planned_steps: tuple[str, ...] = ()
    completed_steps: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    result: RunResult = RunResult.RUNNING
    error: str | None = None


class RunRecord:
    """The record of one run while it goes on: state file replaced at each change, and a log.

    Only the end is forced to the disk: no run outlives a power cut, so what "running" said does not matter.
    """

    def __init__(self, directory: Path, history: Path, state: RunState, clock: Clock) -> None:
        self._directory = directory
        self._history = history
        self._clock = clock
        self.state = state
        self._write(durable=False)

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def log_file(self) -> Path:
        return self._directory / "log"

    def update(self, **changes: Any) -> None:
        """Replace the state file with these fields changed; raises :class:`RecordFailed`."""
        self.state = replace(self.state, **changes)
        self._write(durable=self.state.finished_at is not None)

    def log(self, line: str) -> None:
        """Append `line` with the time to the run's log, control characters made visible."""
        append_line(self.log_file, f"{iso(self._clock.now())} {printable(line)}", durable=False)

    def finish(self, result: RunResult, error: str | None = None, **changes: Any) -> None:
        """Close the record, with these fields changed, and append the one history line of this run."""
        self.update(result=result, error=error, finished_at=iso(self._clock.now()), **changes)
        entry = asdict(self.state) | {"log": str(self.log_file.relative_to(self._history.parent))}
        del entry["phase"]
        append_line(self._history, _json(entry))

    def _write(self, *, durable: bool) -> None:
        text = _json(asdict(self.state), indent=2) + "\n"
        replace_file(self._directory / "state.json", text.encode(), durable=durable)


class RunStore:
    """The runs of every subject below one directory; of each subject the newest `kept` have state and log.

    The history has a line for every run, for ever.
    """

    def __init__(self, directory: Path, clock: Clock, kept: int = 200) -> None:
        self._root = directory
        self._clock = clock
        self._kept = kept

    def start(self, subject: Subject, *, job: str, run: str, process: int) -> RunRecord:
        """Begin the record of a run; raises :class:`RecordFailed` where nothing can be written."""
        directory = self._of(subject) / "runs" / run
        try:
            directory.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise RecordFailed(
                f"cannot begin a run record: {error.strerror}",
                where=str(directory),
                hint="free space or correct permissions",
            ) from error
        self._prune(subject)
        state = RunState(run, job, str(subject), process, started_at=iso(self._clock.now()))
        return RunRecord(directory, self._of(subject) / "history.jsonl", state, self._clock)

    def history(self, subject: Subject) -> Iterator[dict[str, Any]]:
        """The finished runs of `subject`, oldest first; a line that a power cut left torn is passed over."""
        # Not splitlines(): an error's text may hold line separators that are none in JSON.
        for line in _text(self._of(subject) / "history.jsonl").split("\n"):
            entry = _object(line)
            if entry is not None:
                yield entry

    def latest(self, subject: Subject) -> dict[str, Any] | None:
        """The newest run's state file that can be read, finished or not, or None before the first run."""
        documents = (
            _object(_text(directory / "state.json")) for directory in sorted(self._runs(subject), reverse=True)
        )
        return next((document for document in documents if document is not None), None)

    def log_of(self, subject: Subject, run: str | None = None) -> Path | None:
        """The log of `run`, or of the newest run that has one."""
        names = [directory.name for directory in self._runs(subject)] if run is None else [run]
        logs = (self._of(subject) / "runs" / name / "log" for name in sorted(names, reverse=True))
        try:
            return next((log for log in logs if log.exists()), None)
        except OSError as error:
            raise _unreadable(self._of(subject), error) from error

    def _runs(self, subject: Subject) -> list[Path]:
        directory = self._of(subject) / "runs"
        try:
            return list(directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(directory, error) from error

    def _prune(self, subject: Subject) -> None:
        # Run ids sort by time. Best effort: what cannot be removed now is tried again by the next run.
        for directory in sorted(self._runs(subject))[: -self._kept]:
            shutil.rmtree(directory, ignore_errors=True)

    def _of(self, subject: Subject) -> Path:
        return self._root / subject.kind / subject.id


def _json(value: Any, indent: int | None = None) -> str:
    """`value` as JSON that UTF-8 can hold: a lone surrogate of a host's answer becomes its escape."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="backslashreplace").decode()


def _text(path: Path) -> str:
    """A record's text, empty where there is none; raises :class:`RecordFailed` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, error) from error


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unreadable(path: Path, error: OSError) -> RecordFailed:
    return RecordFailed(
        f"cannot be read: {error.strerror}", where=str(path), hint="look at it as the user who runs converge"
    )


def printable(text: str) -> str:
    """`text` with control characters escaped, so that a host's output cannot drive a terminal."""
    return "".join(
        character if character.isprintable() or character == "\t" else repr(character)[1:-1] for character in text
    )
