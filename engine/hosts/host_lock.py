"""The host-side lock: every command of a claimed session runs under one kernel lock with its run's id.

A small shell on the host holds the lock for as long as the command lives, even if the connection that
started it is gone, and hands the lock to none of its children. It refuses to start a command whose run
is no longer the one that claimed the host last. It stands between the command and the connection, so
that a command that prints after the connection ended is not killed by it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import Enum

from engine.hosts.channel import Output, short

HOME = "/var/lib/tenantry"
"""The engine's directory on a tenant, 0700 root."""

LOCK = f"{HOME}/lock"
RUN = f"{HOME}/run"
INPUT = f"{HOME}/input"
STAGING = f"{HOME}/staging"

_REFUSED_STATUS = 121

# Arguments: nonce, run id, label, command, number of bytes that standard input has ("-": unknown),
# "direct" for a command that is to see the connection itself.
# Descriptor 8 is the lock, 3 and 4 are the connection's streams, 5 the command's errors, 9 its status.
_TAKE = f"""
refuse() {{ printf '%s\\n' "tenantry $nonce $1" >&2; cat {LOCK} >&2; exit {_REFUSED_STATUS}; }}
nonce=$1 run=$2
[ -d {HOME} ] || mkdir -p -m 0700 {HOME}
exec 8>>{LOCK} || exit 1
flock -n 8 || flock -w 0.3 8 || refuse busy
"""

# Whose run this was may use what it shipped until here; from here on nothing of it is started any more.
_CLAIM = f"""{_TAKE}
printf '%s\\n' "$run" > {RUN}.partial && mv -f {RUN}.partial {RUN} || exit 1
rm -f {INPUT}
find {STAGING} -mindepth 1 -maxdepth 1 -type d -name '????????????' -exec rm -rf -- {{}} + 2>/dev/null || :
"""

_GUARD = f"""{_TAKE}
holder=
[ -e {RUN} ] && read -r holder < {RUN}
if [ "$holder" != "$run" ]; then printf '%s\\n' "$holder" > {LOCK}; refuse stale; fi
printf '%s\\n' "$run" "$3" > {LOCK}
if [ "$5" != - ]; then
  # A command must never act on a part of its input, so it starts only when all of it is here.
  (umask 077; exec cat > {INPUT}) && exec < {INPUT} || {{ rm -f {INPUT}; exit 1; }}
  rm -f {INPUT}
  [ "$(stat -Lc %s /dev/fd/0)" = "$5" ] || refuse cut
fi
printf %s "$nonce"
if [ "$6" = direct ]; then sh -c "$4" 8>&-; exit $?; fi
# When the connection is gone, tee goes on for its second output: the command can still print.
relay() {{ exec tee -p /dev/null 2>/dev/null; }}
exec 3>&1 4>&2
status=$(
  {{ {{ {{ sh -c "$4" 3>&- 4>&- 5>&- 8>&- 9>&-; echo $? >&9; }} 2>&5 | relay >&3 8>&- 9>&-; }} 5>&1 |
    relay >&4 8>&- 9>&-; }} 9>&1
)
exit "${{status:-1}}"
"""


class Refusal(Enum):
    """Why the host did not start a command."""

    BUSY = "busy"
    STALE = "stale"
    CUT = "cut"


@dataclass(frozen=True)
class Guarded:
    """A command under the lock. `label` is kept on the host while it runs.

    `stdin_bytes` is how many bytes of input must have come before it starts, None for a stream. A `direct`
    command has the connection's own streams, without the relay: a lost connection ends what it prints.
    """

    command: str
    label: str
    stdin_bytes: int | None = None
    direct: bool = False


@dataclass(frozen=True)
class Refused:
    """A refusal with the run and command that hold the lock, or the run that claimed the host."""

    reason: Refusal
    run: str
    command: str


def claim(run_id: str, nonce: str) -> str:
    """The program that makes `run_id` the run whose commands the host starts from now on."""
    return _program(_CLAIM, nonce, run_id)


def guard(run_id: str, nonce: str, guarded: Guarded) -> str:
    """The program that runs a command under the lock; it prints `nonce` before the command's own output."""
    size = "-" if guarded.stdin_bytes is None else str(guarded.stdin_bytes)
    streams = "direct" if guarded.direct else "-"
    return _program(_GUARD, nonce, run_id, short(guarded.label), guarded.command, size, streams)


def refusal(output: Output, nonce: str) -> Refused | None:
    """What the host refused, or None if the command was started; the nonce keeps a command from faking it."""
    if output.status != _REFUSED_STATUS:
        return None
    lines = output.error_text.splitlines()
    for reason in Refusal:
        line = f"tenantry {nonce} {reason.value}"
        if line in lines:
            run, command, *_ = [*lines[lines.index(line) + 1 :], "", ""]
            return Refused(reason, run, command)
    return None


def _program(script: str, *arguments: str) -> str:
    return shlex.join(["sh", "-c", script, "tenantry", *arguments])
