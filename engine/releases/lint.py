"""What a person should know about a manifest before a tenant meets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import InvalidInput
from engine.registry.text import is_unsafe, utf16_length
from engine.releases.model import Manifest, Release, StepEntry, StepInfo
from engine.releases.version import Version


class Rule(StrEnum):
    """What a finding is about."""

    UNKNOWN_STEP = "unknown-step"
    ARGUMENTS = "arguments"
    REPEATED_IN_RELEASE = "repeated-in-release"
    ORDER_LOST = "order-lost"
    OWNER_NOTE = "owner-note"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where (``releases.yaml:12``), by which rule, and what is wanted."""

    where: str
    rule: Rule
    message: str


@dataclass(frozen=True)
class _Writer:
    """A known step entry in its place among all entries, with the keys that it writes."""

    entry: StepEntry
    version: Version
    info: StepInfo
    writes: frozenset[str]


def lint(manifest: Manifest, catalog: Mapping[str, StepInfo], *, limit: int = 480) -> tuple[Finding, ...]:
    """Return what is wrong with `manifest`, in its order; `limit` bounds an owner note's UTF-16 units.

    A manifest without findings can be planned from any marker, and running each equal entry once, at
    its first place, ends where running all of them would.
    """
    findings: list[Finding] = []
    writers: list[_Writer] = []
    for release in manifest:
        findings += _note_findings(release, limit)
        findings += _repetitions(release)
        for entry in release.steps:
            problem = _entry_problem(entry, release, catalog)
            if problem is not None:
                findings.append(problem)
                continue
            info = catalog[entry.name]
            writers.append(_Writer(entry, release.version, info, info.writes(entry.arguments)))
    return (*findings, *_lost_orders(writers))


def _note_findings(release: Release, limit: int) -> Iterator[Finding]:
    note = release.owner_note
    if any(is_unsafe(character) for character in note):
        yield Finding(release.where, Rule.OWNER_NOTE, f"the owner note of {release.version} is not one line")
    if utf16_length(note) > limit:
        yield Finding(
            release.where, Rule.OWNER_NOTE, f"the owner note of {release.version} has over {limit} characters"
        )


def _repetitions(release: Release) -> Iterator[Finding]:
    seen: set[StepEntry] = set()
    for entry in release.steps:
        if entry in seen:
            message = f"release {release.version} names {entry} twice: it runs once"
            yield Finding(entry.where or release.where, Rule.REPEATED_IN_RELEASE, message)
        seen.add(entry)


def _entry_problem(entry: StepEntry, release: Release, catalog: Mapping[str, StepInfo]) -> Finding | None:
    where = entry.where or release.where
    if entry.name not in catalog:
        known = ", ".join(sorted(catalog)) or "none"
        message = f"release {release.version} names the unknown step {entry.name!r}; known steps: {known}"
        return Finding(where, Rule.UNKNOWN_STEP, message)
    try:
        catalog[entry.name].check_arguments(entry.arguments)
        catalog[entry.name].writes(entry.arguments)
    except InvalidInput as error:
        return Finding(where, Rule.ARGUMENTS, f"release {release.version}, step {entry.name}: {error.message}")
    return None


def _lost_orders(writers: list[_Writer]) -> Iterator[Finding]:
    """A repeated entry runs at its first place only, so nothing between may write what it writes."""
    first: dict[StepEntry, int] = {}
    for index, writer in enumerate(writers):
        start = first.setdefault(writer.entry, index)
        for between in writers[start + 1 : index]:
            keys = writer.writes & between.writes
            if keys and between.entry != writer.entry and _may_meet(writer.info, between.info):
                yield Finding(writer.entry.where, Rule.ORDER_LOST, _lost_order(writers[start], between, writer, keys))


def _lost_order(first: _Writer, between: _Writer, again: _Writer, keys: frozenset[str]) -> str:
    return (
        f"{again.entry} of {again.version} runs at its first place in {first.version}, "
        f"but {between.entry} of {between.version} also writes {', '.join(sorted(keys))}: "
        "give the later entry arguments of its own"
    )


def _may_meet(one: StepInfo, other: StepInfo) -> bool:
    """Whether some tenant runs both: an empty condition is every trade or role."""
    return _overlap(one.trades, other.trades) and _overlap(one.roles, other.roles)


def _overlap(one: frozenset[str], other: frozenset[str]) -> bool:
    return not one or not other or bool(one & other)
