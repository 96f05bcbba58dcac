"""An install step that owes a restart: what the gateway reads as its configuration."""

from collections.abc import Iterator

from pyinfra.api import QuoteString, StringCommand

from engine.steps import Answer, FileText, StepContext, install

PATH = "/etc/light/gateway.json"


def is_there(context: StepContext) -> Answer:
    text = context.fact(FileText, path=PATH)
    return Answer.UNKNOWN if text is Answer.UNKNOWN else Answer.of(text == context.arguments["text"])


@install(precondition=is_there, writes=(f"file:{PATH}",), restart=True)
def configure(context: StepContext, *, text: str) -> Iterator[StringCommand]:
    yield StringCommand("mkdir -p /etc/light")
    yield StringCommand("printf", "%s", QuoteString(text), ">", PATH)


configure.deploy()
