"""Python scripts that run on the host: sent over standard input, answered by one framed JSON object.

The frame's nonce is chosen by the sender, so that banners, noise, braces and JSON around the answer
do no harm, and half an answer or two of them are told from a whole one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

INTERPRETER = ("python3", "-ISs")

# The script is compiled only when all of it is here: a part of one could be a whole program too.
_BOOT = """
import json, sys
nonce, size = sys.argv[1], int(sys.argv[2])
data = sys.stdin.buffer.read()
if len(data) != size:
    sys.exit("the script did not arrive whole")
source, parameters = data.split(b"\\0", 1)
space = {"__name__": "tenantry", "PARAMETERS": json.loads(parameters), "RESULT": None}
exec(compile(source, "script", "exec"), space)
sys.stdout.write("\\nBEGIN %s\\n%s\\nEND %s\\n" % (nonce, json.dumps(space["RESULT"]), nonce))
"""


class FrameError(ValueError):
    """The output holds no single whole answer."""


def command(nonce: str, size: int) -> str:
    """The shell command that reads :func:`payload` of `size` bytes and answers under `nonce`."""
    return shlex.join([*INTERPRETER, "-c", _BOOT, nonce, str(size)])


def payload(script: str, parameters: Mapping[str, Any]) -> bytes:
    """What goes to the program's standard input."""
    return script.encode() + b"\0" + json.dumps(parameters).encode()


def read_frame(output: bytes, nonce: str) -> Any:
    """The one JSON value between the marks of `nonce`; raises :class:`FrameError`."""
    begin, end = f"BEGIN {nonce}\n".encode(), f"END {nonce}\n".encode()
    if output.count(begin) != 1 or output.count(end) != 1:
        raise FrameError(f"it has {output.count(begin)} beginnings and {output.count(end)} ends of an answer")
    _, _, rest = output.partition(begin)
    body, found, _ = rest.partition(end)
    if not found:
        raise FrameError("the end of its answer comes before the beginning")
    try:
        return json.loads(body)
    except ValueError as error:
        raise FrameError(f"its answer is not one JSON value: {error}") from error
