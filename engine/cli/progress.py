"""Progress on standard error: live on a terminal, one plain line an event elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from engine.cli.failures import Interrupted
from engine.records.runs import printable
from engine.updater.events import Phase, Reporter

_ROWS = 20


@dataclass(frozen=True)
class News:
    """What `subject` does now: in which phase, and in words."""

    subject: str
    phase: str
    message: str

    @property
    def line(self) -> str:
        return " | ".join(printable(line.strip()) for line in self.message.splitlines())

    def __str__(self) -> str:
        return f"{self.subject} {self.phase}: {self.line}"


class Board:
    """The latest news of every subject that is at work, and how many are done."""

    def __init__(self) -> None:
        self.active: dict[str, News] = {}
        self.done = 0

    def take(self, news: News) -> None:
        if news.phase == Phase.DONE:
            self.active.pop(news.subject, None)
            self.done += 1
        else:
            self.active[news.subject] = news

    def __str__(self) -> str:
        return ", ".join(f"{news.subject} ({news.phase})" for news in self.active.values())

    def __rich__(self) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        for news in list(self.active.values())[:_ROWS]:
            table.add_row(news.subject, news.phase, Text(news.line, no_wrap=True, overflow="ellipsis"))
        hidden = len(self.active) - _ROWS
        if hidden > 0 or self.done:
            table.add_row(f"{self.done} done", f"{hidden} more" if hidden > 0 else "", "")
        return table


@contextmanager
def progress(job: str) -> Iterator[Reporter]:
    """Show what the body reports; an interruption is raised as :class:`Interrupted`, saying of what."""
    with _board(job) as take:
        yield lambda event: take(News(event.subject, event.phase.value, event.message))


@contextmanager
def sentences(job: str, subject: str, phase: str) -> Iterator[Callable[[str], None]]:
    """The same for work on one subject that tells plain sentences."""
    with _board(job) as take:
        yield lambda message: take(News(subject, phase, message))


@contextmanager
def _board(job: str) -> Iterator[Callable[[News], None]]:
    board = Board()
    try:
        with _shown(board) as take:
            yield take
    except KeyboardInterrupt as error:
        at_work = f" of {board}" if board.active else ""
        raise Interrupted(f"{job}{at_work}; give the same command again, it goes on from what is there") from error


@contextmanager
def _shown(board: Board) -> Iterator[Callable[[News], None]]:
    if sys.stderr.isatty():
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        with Live(board, console=console, transient=True, refresh_per_second=8):
            yield board.take
        return

    def take(news: News) -> None:
        board.take(news)
        click.echo(str(news), err=True)

    yield take
