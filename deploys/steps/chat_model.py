"""The model that the assistant speaks through."""

import json
import re
from collections.abc import Iterator

from engine.steps import Model, Place, patch

DEFAULT = re.compile(r"^  default: .*$", re.MULTILINE)


def expected(place: Place) -> Iterator[Model]:
    yield Model("chat", place.arguments["model"])


@patch(file="config", writes=("model:chat",), expects=expected)
def chat_model(text: str, *, model: str) -> str:
    return DEFAULT.sub(lambda _: f"  default: {json.dumps(model)}", text, count=1)


chat_model.deploy()
