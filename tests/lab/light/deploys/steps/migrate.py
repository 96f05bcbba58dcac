"""A step that nothing can take back."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, FileText, StepContext, install


def is_done(context: StepContext) -> Answer:
    text = context.fact(FileText, path="/srv/light/migrated")
    return Answer.UNKNOWN if text is Answer.UNKNOWN else Answer.of(text is not None)


@install(precondition=is_done, writes=("file:/srv/light/migrated",), irreversible=True)
def migrate(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("touch", "/srv/light/migrated")


migrate.deploy()
