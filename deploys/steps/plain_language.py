"""The assistant speaks plainly: short words, short sentences, no jargon."""

from engine.steps import patch

RULES = """
## Plain language

- Write for a busy person: short words, short sentences, one idea in each.
- Explain a technical word the first time, or leave it out.
- If one sentence is enough, write one sentence.
"""

PLAINER = (
    ("You are the professional assistant of", "You are the plain-spoken assistant of"),
    ("- Utilise short paragraphs and commence every list with a verb.\n", "- Keep paragraphs short.\n"),
)


@patch(file="personality")
def plain_language(text: str) -> str:
    for stiff, plain in PLAINER:
        text = text.replace(stiff, plain, 1)
    return text if "\n## Plain language\n" in text else text.rstrip("\n") + "\n" + RULES


plain_language.deploy()
