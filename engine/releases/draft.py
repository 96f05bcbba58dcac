"""The text of a manifest with one release more, everything else as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from engine.errors import Refused
from engine.registry.yaml_text import yaml_lines
from engine.releases.version import Version


@dataclass(frozen=True)
class Draft:
    """A release as a person begins it; `steps` as the manifest writes them: names, or names with arguments."""

    version: Version
    title: str
    steps: Sequence[str | dict[str, Any]]
    details: str
    owner_note: str


def with_draft(text: str, draft: Draft, where: str) -> str:
    """`text`, a checked manifest, with `draft` below its releases.

    Raises :class:`Refused` where they are not written as a block that the file ends with; `where` names the file.
    """
    releases = _releases_node(text)
    if releases is None or releases.flow_style or text[releases.end_mark.index :].strip():
        raise Refused(
            "the releases are not the file's last block, so none can be added below them",
            where=where,
            hint="write each release on lines of its own, and nothing after them",
        )
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = text if text.endswith("\n") else text + newline
    return kept + newline + newline.join(_block(draft, releases.start_mark.column)) + newline


def _releases_node(text: str) -> yaml.SequenceNode | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "releases" and isinstance(value, yaml.SequenceNode):
            return value
    return None


def _block(draft: Draft, indent: int) -> list[str]:
    blanks = " " * indent
    steps = [f"{blanks}    steps:", *(f"{blanks}      - {_step(step)}" for step in draft.steps)]
    return [
        f"{blanks}- version: {json.dumps(draft.version.text)}",
        *yaml_lines("title", draft.title, indent + 2),
        *([line[2:] for line in steps] if draft.steps else [f"{blanks}  steps: []"]),
        *yaml_lines("details", draft.details, indent + 2),
        *yaml_lines("owner_note", draft.owner_note, indent + 2),
    ]


def _step(step: str | dict[str, Any]) -> str:
    return step if isinstance(step, str) else json.dumps(step, ensure_ascii=False)
