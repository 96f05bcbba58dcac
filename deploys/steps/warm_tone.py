"""The assistant stays brief and sounds less like a machine."""

from engine.steps import patch

OLD = "- Start with the answer; give reasons only where they help to decide.\n"
NEW = OLD + "- Be friendly without ceremony: no flattery, no exclamation marks, no apology for being software.\n"


@patch(file="personality")
def warm_tone(text: str) -> str:
    return text if NEW in text else text.replace(OLD, NEW, 1)


warm_tone.deploy()
