"""Undo as the engine asks for it; how it is done is said in ``undo_script.py``."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from engine.errors import RollbackFailed
from engine.hosts.session import Session
from engine.hosts.status import Held
from engine.recovery.assembly import assembled


@dataclass(frozen=True)
class Undone:
    """What an undo did. `aside` is where replaced files went, None if there were none.

    `state_put_back` says whether the state went back, `newer_messages` how many messages of it are aside now (None:
    unknown). `old_pid` is the gateway's main process before, `started_at` when it was started again, None without one.
    """

    aside: str | None
    state_put_back: bool
    newer_messages: int | None
    changed: tuple[str, ...]
    old_pid: int
    started_at: float | None
    problems: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """What a person should know of it."""
        said = []
        if self.state_put_back:
            count = "an unknown number of" if self.newer_messages is None else str(self.newer_messages)
            said.append(
                f"the state was put back, because its form had changed; the state since then, with {count} newer "
                f"messages, is kept in {self.aside}/state"
            )
        if self.changed:
            said.append(f"{len(self.changed)} paths were put back; what they were is kept in {self.aside}")
        return (*said, *(f"while rolling back: {problem}" for problem in self.problems))


def undo(session: Session, set_run: str, by: str, held: Held) -> Undone:
    """Put the tenant back to the set of `set_run`, crash-safely; `by` names what goes aside.

    Raises :class:`RollbackFailed` for a set that is not what it was when it was taken; nothing is changed then.
    """
    found = session.run_script(
        assembled("RESULT = undo.undo(PARAMETERS)"),
        {"set": set_run, "by": by, "held": asdict(held)},
        label="roll back",
    )
    if found["outcome"] != "undone":
        raise RollbackFailed(
            f"the tenant cannot be put back: {found['problem']}",
            where=session.tenant.slug,
            hint=f"tenantry restore {session.tenant.slug}",
        )
    return Undone(
        aside=found["aside"],
        state_put_back=found["state"] == "put back",
        newer_messages=found["newer_messages"],
        changed=tuple(found["changed"]),
        old_pid=found["old_pid"],
        started_at=found["started_at"],
        problems=tuple(found["problems"]),
    )
