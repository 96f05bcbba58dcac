"""A patch step: a narrow edit of the personality."""

from engine.steps import patch

LINE = "Always say please.\n"


@patch(file="personality")
def polite(text: str) -> str:
    return text if LINE in text else text + LINE


polite.deploy()
