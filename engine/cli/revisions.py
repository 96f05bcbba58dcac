"""A revision of the fleet's repository as a fleet of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import InvalidInput, MissingPart, TenantryError
from engine.updater.workspace import Workspace, open_workspace


@contextmanager
def workspace_at(root: Path, revision: str) -> Iterator[Workspace]:
    """The fleet at `root` as it was at a git revision, in a directory that is removed afterwards.

    Raises :class:`InvalidInput` for an unknown revision, one that holds no fleet, or one whose fleet is
    wrong; places are then given as ``REVISION:FILE``.
    """
    with tempfile.TemporaryDirectory(prefix="tenantry-revision-") as name:
        directory = Path(name)
        prefix = _git(root, "rev-parse", "--show-prefix").rstrip("\n")
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
        archive = directory / "revision.tar"
        # From the top: below it git refuses a tree of another directory.
        top = Path(_git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
        _git(top, "archive", "--format=tar", f"--output={archive}", f"{commit}:{prefix}")
        tree = directory / "fleet"
        tree.mkdir()
        _run(["tar", "--extract", f"--file={archive}", f"--directory={tree}"])
        try:
            yield open_workspace(tree)
        except TenantryError as error:
            if str(tree) not in str(error):
                raise
            text = str(error).replace(f"{tree}/", f"{revision}:")
            raise InvalidInput(f"the fleet of revision {revision} is not usable: {text}") from error


def _git(root: Path, *arguments: str) -> str:
    if not root.is_dir():
        raise InvalidInput("there is no such directory", where=str(root), hint="name a fleet directory with -C")
    return _run(["git", "-C", str(root), *arguments])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except FileNotFoundError as error:
        raise MissingPart(f"{command[0]} is not installed", hint=f"apt-get install --yes {command[0]}") from error
    if done.returncode != 0:
        words = done.stderr.strip() or "no such revision"
        raise InvalidInput(
            f"the revision cannot be read: {words}",
            hint="give a commit, branch or tag of the repository that holds this fleet",
        )
    return done.stdout
