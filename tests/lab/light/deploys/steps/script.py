"""A step for fault tests: runs a command; its effect is a file that the command should write."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, FileText, StepContext, install


def has_effect(context: StepContext) -> Answer:
    text = context.fact(FileText, path=context.arguments["effect"])
    return Answer.UNKNOWN if text is Answer.UNKNOWN else Answer.of(text is not None)


@install(precondition=has_effect, writes=("file:{effect}",))
def script(context: StepContext, *, command: str, effect: str) -> Iterator[StringCommand]:
    yield StringCommand(command)


script.deploy()
