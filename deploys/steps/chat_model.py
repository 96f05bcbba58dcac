"""The model that the assistant speaks through."""

import json
import re

from engine.steps import patch

DEFAULT = re.compile(r"^  default: .*$", re.MULTILINE)


@patch(file="config")
def chat_model(text: str, *, model: str) -> str:
    return DEFAULT.sub(lambda _: f"  default: {json.dumps(model)}", text, count=1)


chat_model.deploy()
