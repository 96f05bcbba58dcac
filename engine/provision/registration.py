"""A new record in the registry: checked as a whole, written so that the rest of the file stays as it is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.clock import Clock, new_run_id
from engine.errors import InvalidInput, Refused
from engine.locks import LockDirectory
from engine.records import replace_file
from engine.registry.load import TENANTS_FILE, load_tenants
from engine.registry.model import Tenant
from engine.registry.yaml_text import yaml_key, yaml_lines
from engine.subject import Subject

REGISTRY = Subject("fleet", "registry")

ORDER = (
    "owner_name",
    "business",
    "trade",
    "role",
    "daily_backup",
    "text_updates",
    "address",
    "ssh_user",
    "ssh_port",
    "provider",
    "forwarding_address",
    "page_host",
    "parameters",
    "quiet_hours",
    "hold",
    "pin",
    "secrets",
)
"""The keys of a record in the order in which a person reads them."""


@dataclass(frozen=True)
class Registration:
    """A registry with one record more: `tenant` as it reads, `text` the whole new file."""

    tenant: Tenant
    text: str


def check_record(root: Path, slug: str, record: Mapping[str, Any]) -> Registration:
    """The registry of `root` with `record` added; nothing is written.

    Raises :class:`InvalidInput` naming every wrong key, :class:`Refused` for a slug that is there already.
    """
    path = root / TENANTS_FILE
    present = load_tenants(path)
    if slug in present:
        raise Refused(f"there is a tenant {slug} already", where=str(path), hint="choose another slug")
    text = _with_record(path.read_bytes().decode(), slug, record, str(path))
    tenants = _loaded(text, path)
    if {name: tenant for name, tenant in tenants.items() if name != slug} != dict(present) or slug not in tenants:
        raise Refused(
            "the record cannot be added without changing others",
            where=str(path),
            hint="end the file with the records of `tenants`, in block style, and add nothing after them",
        )
    return Registration(tenants[slug], text)


def register(root: Path, state_directory: Path, clock: Clock, slug: str, record: Mapping[str, Any]) -> Tenant:
    """Add `record` to the registry of `root`, under the registry's own lock; see :func:`check_record`."""
    locks = LockDirectory(state_directory / "locks", clock)
    # A wrong record is refused before even the lock's directory is made.
    check_record(root, slug, record)
    with locks.hold(REGISTRY, job="tenant add", run=new_run_id(clock)):
        registration = check_record(root, slug, record)
        replace_file(root / TENANTS_FILE, registration.text.encode(), mode=0o644)
    return registration.tenant


def parse_record(content: bytes) -> dict[str, Any]:
    """A record as a JSON object, for a path without flags; raises :class:`InvalidInput`."""
    try:
        document = json.loads(content.decode(), object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except ValueError as error:
        raise InvalidInput(f"the record is not JSON: {error}", where="standard input") from error
    if not isinstance(document, dict):
        raise InvalidInput("the record is not a JSON object", where="standard input")
    return document


def _loaded(text: str, path: Path) -> Mapping[str, Tenant]:
    """The registry that `text` is; its errors name the real file."""
    with tempfile.TemporaryDirectory(prefix="tenantry-") as directory:
        candidate = Path(directory) / path.name
        candidate.write_bytes(text.encode())
        try:
            return load_tenants(candidate)
        except InvalidInput as error:
            place = f"{path} with the new record"
            raise InvalidInput(
                error.message.replace(str(candidate), str(path)),
                where=error.where.replace(str(candidate), place),
                hint=error.hint.replace(str(candidate), str(path)),
            ) from error


def _with_record(text: str, slug: str, record: Mapping[str, Any], where: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    tenants = _tenants_node(text)
    if tenants is not None and tenants.value and not tenants.flow_style:
        indent = tenants.value[0][0].start_mark.column
        kept = text if text.endswith("\n") else text + newline
        return kept + newline + _block(slug, record, indent, newline)
    if tenants is not None and not tenants.value:
        before, after = text[: tenants.start_mark.index].rstrip(" "), text[tenants.end_mark.index :]
        return before + newline + _block(slug, record, 2, newline) + after.lstrip("\r\n")
    raise Refused(
        "the records are not in block style, so none can be added below them",
        where=where,
        hint="write each tenant on lines of its own",
    )


def _tenants_node(text: str) -> yaml.MappingNode | None:
    """The mapping of all records, with its place in the text; the file was read and checked before."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "tenants" and isinstance(value, yaml.MappingNode):
            return value
    return None


def _block(slug: str, record: Mapping[str, Any], indent: int, newline: str) -> str:
    known = [key for key in ORDER if key in record]
    lines = [f"{' ' * indent}{yaml_key(slug)}:"]
    for key in (*known, *(key for key in record if key not in ORDER)):
        lines += yaml_lines(key, record[key], indent + 2)
    return newline.join(lines) + newline


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")
