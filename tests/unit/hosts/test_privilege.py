"""What sudo says when it says no."""

from __future__ import annotations

import pytest

from engine.errors import AuthenticationRefused
from engine.hosts.channel import Output
from engine.hosts.privilege import check_privilege

REFUSALS = [
    (1, "sudo: a password is required", "asks for a password"),
    (1, "sudo-rs: interactive authentication is required", "asks for a password"),
    (1, "sudo: sorry, you must have a tty to run sudo", "demands a terminal"),
    (1, "ops is not in the sudoers file.\nThis incident has been reported to the administrator.", "is not allowed"),
    (1, "ops is not in the sudoers file.  This incident has been reported to the administrator.", "is not allowed"),
    (
        1,
        "Sorry, user ops is not allowed to execute '/usr/bin/env LC_ALL=C.UTF-8 sh' as root on maple.",
        "is not allowed",
    ),
    (1, "noise of the login shell\r\nsudo: a password is required\r\n", "asks for a password"),
    (127, "sh: 1: exec: sudo: not found", "is not installed"),
    (127, "bash: line 1: exec: sudo: not found", "is not installed"),
    (127, "bash: sudo: command not found", "is not installed"),
]


@pytest.mark.parametrize(("status", "text", "problem"), REFUSALS)
def test_a_refusal_is_told_in_words(status: int, text: str, problem: str):
    with pytest.raises(AuthenticationRefused, match=problem) as refusal:
        check_privilege(Output(status, b"", text.encode()), "ops", "maple")
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("status", "text", "user"),
    [
        (0, "sudo: a password is required", "ops"),
        (1, "grep: no match", "ops"),
        (1, "sudo: not found", "root"),
        (1, "install.sh: sudo: a password is required", "ops"),
        (1, "the sudo rules say: a password is required", "ops"),
        (1, "sudoers: eve is not allowed to log in", "ops"),
        (127, "install.sh: line 3: visudo: sudo: not found here", "ops"),
    ],
)
def test_a_command_of_ones_own_is_not_taken_for_one(status: int, text: str, user: str):
    check_privilege(Output(status, b"", text.encode()), user, "maple")


def test_a_command_that_has_begun_was_not_ended_by_sudo():
    check_privilege(Output(1, b"", b"sudo: a password is required", began=True), "ops", "maple")
