"""How a command becomes root on the host, and what the host says when it may not."""

from __future__ import annotations

import re
import shlex

from engine.errors import AuthenticationRefused
from engine.hosts.channel import Output

LOCALE = "C.UTF-8"

# Each is a whole line of sudo, or of the login shell that did not find it.
_REFUSALS = (
    (r"sudo(-rs)?: .*must have a tty.*", "sudo demands a terminal", "remove `Defaults requiretty` for this user"),
    (
        r"sudo(-rs)?: .*(a password|authentication) is required",
        "sudo asks for a password",
        "give this user a NOPASSWD rule in /etc/sudoers.d",
    ),
    (
        r"{user} is not in the sudoers file\b.*|Sorry, user {user} is not allowed to .*|sudo(-rs)?: .*not allowed to.*",
        "sudo is not allowed",
        "add this user to /etc/sudoers.d",
    ),
    (
        r"(\S+: )?(line \d+: |\d+: )?(exec: )?sudo: (command )?not found",
        "sudo is not installed",
        "install sudo or log in as root",
    ),
)


def as_root(program: str, ssh_user: str) -> str:
    """The command line that replaces the login shell by `program` (quoted), as root in a known locale."""
    if ssh_user == "root":
        return f"LC_ALL={LOCALE} exec {program}"
    return f"exec sudo -n env LC_ALL={LOCALE} {program}"


def shell(command: str, mark: str) -> str:
    """The program that prints `mark` and interprets `command`; it stays to turn a signal into a status."""
    script = f"printf %s {mark}; {shlex.join(['sh', '-c', command])}; exit $?"
    return shlex.join(["sh", "-c", script])


def check_privilege(output: Output, ssh_user: str, where: str) -> None:
    """Raise :class:`AuthenticationRefused` if it was sudo that ended the command, before it began."""
    if ssh_user == "root" or output.status not in (1, 127) or output.began:
        return
    for pattern, problem, hint in _REFUSALS:
        if re.search(f"^(?:{pattern.format(user=re.escape(ssh_user))})\\s*$", output.error_text, re.MULTILINE):
            raise AuthenticationRefused(f"{ssh_user} may not become root: {problem}", where=where, hint=hint)
