"""Runs on the tenant: what can be said of a gateway that its owner cannot reach. It changes nothing.

Reads ``PARAMETERS``: unit, since (Unix seconds), lines, url. Leaves ``RESULT``: texts by the names of their files.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import http.client
import subprocess
import urllib.error
import urllib.request

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
LARGEST = 256 * 1024


def said_by(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr)[-LARGEST:].decode("utf-8", "replace")


def answer_of(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return f"{answer.status} {answer.reason}\n\n{answer.read(LARGEST).decode('utf-8', 'replace')}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}\n\n{error.read(LARGEST).decode('utf-8', 'replace')}"
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error}"


unit = PARAMETERS["unit"]
RESULT = {
    "journal.txt": said_by(
        "journalctl", "--no-pager", "--output=short-iso", f"--lines={PARAMETERS['lines']}",
        f"--since=@{int(PARAMETERS['since'])}", f"--unit={unit}",
    ),
    "unit.txt": said_by("systemctl", "status", "--no-pager", "--full", "--lines=0", "--", unit),
    "health.txt": answer_of(PARAMETERS["url"]),
}  # fmt: skip
