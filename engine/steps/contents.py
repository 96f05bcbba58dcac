"""The commonest preconditions: what a step installs lies on the host, byte for byte, and runs."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyinfra.api import FactBase

from engine.hosts.status import Answer
from engine.steps.context import StepContext

_LINE = re.compile(r"^(absent|[0-9a-f]{64}) [ *]?(.+)$")


class FileDigests(FactBase):  # type: ignore[misc]
    """The sha256 of files on the host by path, None for one that is not there; or UNKNOWN."""

    def command(self, paths: Sequence[str]) -> str:
        names = " ".join(shlex.quote(path) for path in paths)
        digest = 'digest=$(sha256sum < "$path"); echo "${digest%% *} $path"'
        body = f'if [ -f "$path" ]; then {digest}; else echo "absent $path"; fi'
        return f"set -e; for path in {names}; do {body}; done"

    @staticmethod
    def default() -> Any:
        return Answer.UNKNOWN

    def process(self, output: list[str]) -> Any:
        found: dict[str, str | None] = {}
        for line in output:
            match = _LINE.match(line)
            if not match:
                return Answer.UNKNOWN
            found[match[2]] = None if match[1] == "absent" else match[1]
        return found


def all_hold(*answers: Answer) -> Answer:
    """Holds when all do; unknown when one is, whatever the others say."""
    if Answer.UNKNOWN in answers:
        return Answer.UNKNOWN
    return Answer.of(Answer.DOES_NOT_HOLD not in answers)


def runs(context: StepContext, unit: str) -> Answer:
    """Whether the unit, one of the fleet's services, was active when the status was read."""
    service = context.status.services.get(unit)
    return Answer.of(None if service is None else service.is_active)


def present(context: StepContext, *paths: str) -> Answer:
    """Whether each of these files is on the host, whatever it holds."""
    found = context.fact(FileDigests, paths=paths)
    return Answer.of(None not in found.values()) if isinstance(found, dict) else Answer.UNKNOWN


def same_files(context: StepContext, sources: Mapping[str, Path]) -> Answer:
    """Whether each path on the host holds the bytes of its source file here."""
    found = context.fact(FileDigests, paths=tuple(sources))
    if not isinstance(found, dict) or set(found) != set(sources):
        return Answer.UNKNOWN
    return Answer.of(
        all(found[path] == hashlib.sha256(source.read_bytes()).hexdigest() for path, source in sources.items())
    )


def bundle_files(context: StepContext, bundle: str, part: str, target: str) -> dict[str, Path]:
    """Where the files below ``part`` of a bundle belong, under the host's directory `target`."""
    root = context.fleet_root / "deploys" / "bundles" / bundle / part
    return {f"{target}/{path.relative_to(root).as_posix()}": path for path in sorted(root.rglob("*")) if path.is_file()}
