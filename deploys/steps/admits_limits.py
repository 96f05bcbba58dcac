"""The assistant says when it does not know, and whom to ask instead."""

from engine.steps import patch

OLD = "- Promise prices, dates or legal advice in the owner's name.\n"
NEW = OLD + "- Guess. If you do not know, say so in the first sentence, and say who would know.\n"


@patch(file="personality")
def admits_limits(text: str) -> str:
    return text if NEW in text else text.replace(OLD, NEW, 1)


admits_limits.deploy()
