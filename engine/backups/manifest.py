"""An archive's manifest: the file beside it that says what it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from engine.errors import ArchiveRejected
from engine.records import replace_file

FORMAT = 1


@dataclass(frozen=True)
class Database:
    """One SQLite database in an archive: the rows of each table, its ``user_version``, and its size.

    A table that needs an extension which the tenant's own SQLite lacks is left out of `tables`.
    """

    tables: Mapping[str, int]
    user_version: int
    size_bytes: int


@dataclass(frozen=True)
class Manifest:
    """What is known of one archive. Times are UTC ISO 8601, `digest` is that of the compressed file.

    `archive` is its id, the time in its name. `version` is the marker, None at version zero and where
    `marker_problem` says why it could not be read. `applied` maps versions to the digests of applied releases.
    """

    slug: str
    archive: str
    run: str
    engine_version: str
    started_at: str
    finished_at: str
    size_bytes: int
    digest: str
    version: str | None
    marker_problem: str | None
    applied: Mapping[str, str]
    contents: tuple[Mapping[str, Any], ...]
    members: int
    uncompressed_bytes: int
    databases: Mapping[str, Database] = field(default_factory=dict)
    format: int = FORMAT

    def document(self) -> dict[str, Any]:
        """The manifest as JSON has it."""
        return asdict(self)


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Write `path` whole and durably, mode 0600; raises :class:`RecordFailed`."""
    # Escaped: the names of tables and files may hold what UTF-8 cannot.
    replace_file(path, (json.dumps(manifest.document(), indent=1) + "\n").encode())


def load_manifest(path: Path) -> Manifest:
    """Read and check the manifest file `path`; raises :class:`ArchiveRejected` where it is absent or not one."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ArchiveRejected(f"the manifest cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ArchiveRejected(f"the manifest is no JSON: {error}", where=str(path)) from error
    problem = problem_of(document)
    if problem is not None:
        raise ArchiveRejected(f"the manifest is not one of ours: {problem}", where=str(path))
    databases = {name: Database(**database) for name, database in document["databases"].items()}
    return Manifest(**{**document, "databases": databases, "contents": tuple(document["contents"])})


def problem_of(document: Any) -> str | None:
    """Why `document` is no manifest, or None: what a tenant said of itself is in it."""
    # JSON has no tuples.
    value = json.loads(json.dumps(document))
    problem = next(iter(_validator().iter_errors(value)), None)
    if problem is None:
        return None
    place = "/".join(str(part) for part in problem.absolute_path) or "the whole"
    return f"{place}: {problem.message[:200]}"


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(files("engine.backups").joinpath("manifest.json").read_text("utf-8")))
