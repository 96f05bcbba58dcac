"""An install step: writes one greeting file through the bundle's installer."""

from collections.abc import Iterator

from pyinfra.api import QuoteString, StringCommand

from engine.steps import Answer, FileText, StepContext, install


def is_there(context: StepContext) -> Answer:
    text = context.fact(FileText, path=f"/srv/light/greetings/{context.arguments['name']}")
    return Answer.UNKNOWN if text is Answer.UNKNOWN else Answer.of(text == f"{context.arguments['text']}\n")


@install(bundle="greeting", precondition=is_there, writes=("file:/srv/light/greetings/{name}",))
def greeting(context: StepContext, *, name: str, text: str) -> Iterator[StringCommand]:
    yield StringCommand(f"{context.staging}/install.sh", QuoteString(name), QuoteString(text))


greeting.deploy()
