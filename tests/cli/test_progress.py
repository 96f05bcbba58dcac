"""What a run tells while it goes on, in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from engine.cli.failures import Interrupted
from engine.cli.progress import progress, sentences
from engine.updater.events import Event, Phase

PROGRAM = """
from engine.cli.progress import progress
from engine.updater.events import Event, Phase
with progress("converge") as report:
    report(Event("maple", Phase.APPLY, "step \\x1b[5m one"))
    report(Event("maple", Phase.DONE, "updated"))
"""


def test_in_a_pipe_it_is_one_plain_line_an_event_on_standard_error(capsys: pytest.CaptureFixture[str]):
    with progress("converge") as report:
        report(Event("maple", Phase.APPLY, "step \x1b[5m one\n  hint: more"))
    with sentences("lab up", "lab", "up") as tell:
        tell("building")
    printed = capsys.readouterr()
    assert printed.err == "maple apply: step \\x1b[5m one | hint: more\nlab up: building\n"
    assert printed.out == ""


def test_on_a_terminal_it_is_live_and_leaves_nothing_behind():
    output = _on_a_terminal(PROGRAM, {"TERM": "xterm"})
    assert b"\x1b[" in output
    assert b"\x1b[5m" not in output, "a host must not drive the terminal"
    assert b"maple apply: step" not in output


def test_no_color_is_honoured_on_a_terminal():
    program = "from engine.cli.output import print_line, print_table\n"
    program += "print_line('x', style='red')\nprint_table(('state',), [('failed',)])\n"
    assert b"31m" in _on_a_terminal(program, {"TERM": "xterm"})
    assert b"31m" not in _on_a_terminal(program, {"TERM": "xterm", "NO_COLOR": "1"})


def test_an_interruption_says_of_what():
    with pytest.raises(Interrupted) as raised, progress("converge") as report:
        report(Event("maple", Phase.APPLY, "step"))
        report(Event("maple", Phase.DONE, "updated"))
        report(Event("harbor", Phase.QUIESCE, "waiting"))
        raise KeyboardInterrupt
    assert str(raised.value).startswith("converge of harbor (quiesce); give the same command again")


def _on_a_terminal(program: str, environment: dict[str, str]) -> bytes:
    master, slave = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=inherited | environment,
        close_fds=True,
    )
    # Closed at once: where gevent is at work, its own close waits for its loop, and reading would never end.
    os.closerange(slave, slave + 1)
    output = b""
    # Reading a terminal whose last user is gone is EIO on Linux, the end of file elsewhere.
    try:
        while chunk := os.read(master, 65536):
            output += chunk
    except OSError:
        pass
    os.close(master)
    assert child.wait() == 0, output
    return output
