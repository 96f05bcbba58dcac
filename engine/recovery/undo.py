"""Undo as the engine asks for it; how it is done is said in ``undo_script.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from engine.errors import RollbackFailed
from engine.hosts.session import Session
from engine.hosts.status import Held
from engine.recovery.assembly import assembled


@dataclass(frozen=True)
class Undone:
    """What an undo did. `aside` is where replaced files went, None if there were none.

    `state_put_back` says whether a copy of the state went back because its form had changed, `given_back` which paths
    came back out of the set, and where what had their place went. `newer_in` is where the state since then lies (None:
    it stayed), `newer_messages` how many newer messages it has (None: unknown). `old_pid` is the gateway's main process
    before, `started_at` when it was started again, None without one.
    """

    aside: str | None
    state_put_back: bool
    given_back: Mapping[str, str]
    newer_in: str | None
    newer_messages: int | None
    changed: tuple[str, ...]
    old_pid: int
    started_at: float | None
    problems: tuple[str, ...]

    @property
    def messages(self) -> tuple[str, ...]:
        """What a person should know of it."""
        said = []
        if self.newer_in:
            count = "an unknown number of" if self.newer_messages is None else str(self.newer_messages)
            why = "was put back, because its form had changed" if self.state_put_back else "came back out of the set"
            said.append(
                f"the state {why}; the state since then, with {count} newer messages, is kept in {self.newer_in}"
            )
        if self.given_back:
            places = ", ".join(f"{path} in {aside}" for path, aside in self.given_back.items())
            said.append(f"{len(self.given_back)} paths came back out of the set; what they were is kept: {places}")
        if self.changed:
            said.append(f"{len(self.changed)} paths were put back; what they were is kept in {self.aside}")
        if self.aside and not said:
            said.append(f"what was replaced is kept in {self.aside}")
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
        given_back={item["path"]: item["aside"] for item in found["given_back"]},
        newer_in=found["newer_in"],
        newer_messages=found["newer_messages"],
        changed=tuple(found["changed"]),
        old_pid=found["old_pid"],
        started_at=found["started_at"],
        problems=tuple(found["problems"]),
    )
