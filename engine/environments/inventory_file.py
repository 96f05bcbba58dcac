"""Changes of `inventory/environments.yaml` that keep everything else in it as it is, comments included."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.clock import Clock, new_run_id
from engine.errors import InvalidInput, Refused
from engine.locks import LockDirectory
from engine.records import replace_file
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from engine.registry.environments_model import Environments
from engine.registry.yaml_text import yaml_lines
from engine.subject import Subject

INVENTORY = Subject("fleet", "environments")

Place = tuple[str, str]
"""Section and key of an entry: ``environments`` and a uuid, or ``tiers`` and a slug."""


def add_environment(root: Path, state_directory: Path, clock: Clock, uuid: str, record: Mapping[str, Any]) -> None:
    """Add an entry under `uuid`, checked as a whole before it is written.

    Raises :class:`InvalidInput` naming what is wrong with it, :class:`Refused` for a uuid that is there already.
    """
    if uuid in load_environments(root).environments:
        raise Refused("there is an environment under this uuid already", where=uuid, hint="choose another one")
    _change(root, state_directory, clock, lambda text: _with_entry(text, uuid, record), {uuid})


def mark_retired(root: Path, state_directory: Path, clock: Clock, uuid: str) -> bool:
    """Write ``retired: true`` into the entry of `uuid`; False where it is there already, or no such entry.

    Raises :class:`InvalidInput` for a tier with members.
    """
    inventory = load_environments(root)
    places: dict[str, Place] = {
        tier.uuid: ("tiers", slug) for slug, tier in inventory.tiers.items() if not tier.retired
    }
    places |= {key: ("environments", key) for key, item in inventory.environments.items() if not item.retired}
    if uuid not in places:
        return False
    _change(root, state_directory, clock, lambda text: _with_retired(text, places[uuid]), {uuid})
    return True


def _change(root: Path, state_directory: Path, clock: Clock, edit: Callable[[str], str], touched: set[str]) -> None:
    path = root / ENVIRONMENTS_FILE
    locks = LockDirectory(state_directory / "locks", clock)
    _checked(root, edit, touched)
    with locks.hold(INVENTORY, job="env", run=new_run_id(clock)):
        text = _checked(root, edit, touched)
        replace_file(path, text.encode(), mode=0o644)


def _checked(root: Path, edit: Callable[[str], str], touched: set[str]) -> str:
    """The file's text after `edit`, which must be valid and leave every entry but those `touched` as it was."""
    path, before = root / ENVIRONMENTS_FILE, load_environments(root)
    text = edit(path.read_bytes().decode())
    with tempfile.TemporaryDirectory(prefix="tenantry-") as directory:
        candidate = Path(directory) / ENVIRONMENTS_FILE
        candidate.parent.mkdir()
        candidate.write_bytes(text.encode())
        try:
            after = load_environments(Path(directory))
        except InvalidInput as error:
            where = error.where.replace(directory, str(root))
            raise InvalidInput(error.message.replace(directory, str(root)), where=where, hint=error.hint) from error
    if _others(before, touched) != _others(after, touched):
        raise Refused(
            "the entry cannot be written without changing others",
            where=str(path),
            hint="write `environments` and `tiers` in block style, each entry on lines of its own",
        )
    return text


def _others(inventory: Environments, touched: set[str]) -> object:
    tiers = {slug: tier for slug, tier in inventory.tiers.items() if tier.uuid not in touched}
    environments = {uuid: item for uuid, item in inventory.environments.items() if uuid not in touched}
    return inventory.parents, dict(inventory.projects), tiers, environments


def _with_entry(text: str, uuid: str, record: Mapping[str, Any]) -> str:
    newline, found = _newline(text), _node(text, ("environments",))
    if found is None:
        kept = text if text.endswith("\n") else text + newline
        return kept + newline.join(["", "environments:", *yaml_lines(uuid, record, 2), ""])
    if not found.value:
        before, after = text[: found.start_mark.index].rstrip(" "), text[found.end_mark.index :]
        return before + newline + newline.join(yaml_lines(uuid, record, 2)) + after
    first = found.value[0][0].start_mark
    lines = yaml_lines(uuid, record, first.column)
    at = text.rfind("\n", 0, first.index) + 1
    return text[:at] + "".join(line + newline for line in lines) + text[at:]


def _with_retired(text: str, place: Place) -> str:
    entry = _node(text, place)
    assert entry is not None and entry.value
    start = entry.value[0][0].start_mark
    if entry.flow_style:
        return f"{text[: start.index]}retired: true, {text[start.index :]}"
    return f"{text[: start.index]}retired: true{_newline(text)}{' ' * start.column}{text[start.index :]}"


def _node(text: str, path: tuple[str, ...]) -> yaml.MappingNode | None:
    """The mapping at `path`, with its place in the text; the file was read and checked before."""
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        inner = [value for name, value in node.value if name.value == key] if isinstance(node, yaml.MappingNode) else []
        node = inner[0] if inner else None
    return node if isinstance(node, yaml.MappingNode) else None


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
