"""Documents, tables and lines on standard output."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.records.runs import printable

_UNBOUNDED = 100_000

STYLES: Mapping[str, str] = {
    "updated": "green",
    "unchanged": "green",
    "backed-up": "green",
    "restored": "green",
    "rehearsed": "green",
    "passed": "green",
    "ok": "green",
    "running": "cyan",
    "deferred": "yellow",
    "rolled-back": "yellow",
    "busy": "yellow",
    "expected warning": "yellow",
    "interrupted": "yellow",
    "failed": "red",
    "missing": "red",
    "unreachable": "red",
}
"""The colour of a word that stands alone in a table."""


def print_document(document: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_line(text: str = "", *, style: str | None = None) -> None:
    """Print one line; control characters are shown, not sent."""
    click.echo(click.style(printable(text), fg=style) if style and uses_colour() else printable(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under column titles; on a terminal in its width, elsewhere one line a row."""
    table = Table(*columns, box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(shown(cell), style=STYLES.get(cell, "")) for cell in row))
    for line in _rendered(table).splitlines():
        if line.strip():
            click.echo(line.rstrip())


def print_diff(lines: Iterable[str]) -> None:
    """Print a unified diff, coloured on a terminal."""
    for line in lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        print_line(line, style=style)


def shown(text: str) -> str:
    """`text` without control characters other than its line ends."""
    return "\n".join(printable(line) for line in text.split("\n"))


def uses_colour() -> bool:
    """Whether standard output is a terminal whose user has not asked for no colour (NO_COLOR)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _rendered(table: Table) -> str:
    is_terminal = sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        width=None if is_terminal else _UNBOUNDED,
        force_terminal=is_terminal,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(table)
    return capture.get()
