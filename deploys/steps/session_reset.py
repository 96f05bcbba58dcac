"""Ends open sessions at the gateway's next start, so that all speak with the new personality.

The gateway's unit runs the installed program before it starts, when nothing else has the database open.
What is ended is kept in a file in the runtime's home. Each reset has a name and happens once.
"""

import shlex
from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, File, FileText, Place, StepContext, install
from engine.steps.contents import all_hold, same_files

PROGRAM = "/opt/tenant-sessions/end.py"
DECLARED = "/etc/tenant/session-reset"


def declaration(name: str, sources: str) -> str:
    return f"{name}\n{sources}\n"


def declared(context: StepContext) -> Answer:
    """Whether the program is ours and exactly this reset is declared; the owed restart carries it out."""
    text = context.fact(FileText, path=DECLARED)
    if text is Answer.UNKNOWN:
        return Answer.UNKNOWN
    wanted = declaration(**context.arguments)
    program = context.fleet_root / "deploys" / "bundles" / "session_reset" / "end.py"
    return all_hold(Answer.of(text == wanted), same_files(context, {PROGRAM: program}))


def expected(place: Place) -> Iterator[File]:
    yield File(PROGRAM, source="end.py")
    yield File(DECLARED, content=declaration(**place.arguments).encode())


@install(
    bundle="session_reset",
    precondition=declared,
    writes=(f"file:{PROGRAM}", f"file:{DECLARED}"),
    expects=expected,
    restart=True,
)
def session_reset(context: StepContext, *, name: str, sources: str) -> Iterator[StringCommand]:
    values = (shlex.quote(f"RESET={name}"), shlex.quote(f"SOURCES={sources}"))
    yield StringCommand("env", *values, "sh", f"{context.staging}/install.sh")


session_reset.deploy()
