"""The dead-man as the engine arms and disarms it; what it does is said in ``dead_man_script.py``."""

from __future__ import annotations

from engine.hosts.session import Session
from engine.recovery.assembly import assembled

TICK = "dead_man.tick()"


def arm(session: Session, *, set_run: str, run: str, head: str) -> None:
    """Let the tenant put itself back to the set of `set_run` if nothing more comes of `run`, which leads to `head`."""
    recovery = session.settings.recovery
    session.run_script(
        assembled("RESULT = dead_man.arm(PARAMETERS)"),
        {
            "set": set_run,
            "run": run,
            "head": head,
            "seconds": recovery.dead_man_seconds,
            "poll_seconds": recovery.dead_man_poll_seconds,
            "program": assembled(TICK),
        },
        label="arm the dead-man",
    )


def disarm(session: Session) -> None:
    """Let the tenant stay as it is."""
    session.run_script(assembled("RESULT = dead_man.disarm()"), {}, label="disarm the dead-man")
