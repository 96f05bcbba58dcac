"""The chat model is asked of these hosts alone, in this order: the owner's words go nowhere else."""

import json
import re
from collections.abc import Iterator

from engine.steps import Place, Value, patch

ROUTING = re.compile(r"^provider_routing:\n(?:  .*\n)*", re.MULTILINE)


def expected(place: Place) -> Iterator[Value]:
    for name in ("only", "order"):
        yield Value("config", f"provider_routing.{name}", place.arguments["hosts"])


@patch(file="config", expects=expected)
def chat_hosts(text: str, *, hosts: tuple[str, ...]) -> str:
    named = json.dumps(list(hosts))
    block = f"provider_routing:\n  only: {named}\n  order: {named}\n"
    return ROUTING.sub("", text).rstrip("\n") + "\n" + block


chat_hosts.deploy()
