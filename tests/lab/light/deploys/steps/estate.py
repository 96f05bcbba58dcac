"""A step for one trade alone."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, FileText, StepContext, install


def is_there(context: StepContext) -> Answer:
    text = context.fact(FileText, path="/srv/light/estate")
    return Answer.UNKNOWN if text is Answer.UNKNOWN else Answer.of(text is not None)


@install(precondition=is_there, writes=("file:/srv/light/estate",), trades=("real-estate",))
def estate(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("touch", "/srv/light/estate")


estate.deploy()
