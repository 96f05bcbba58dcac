"""Entry point of the command ``tenantry``."""

# Sockets and threads must become cooperative before anything else imports them, or one slow tenant stops all.
from gevent import monkey

monkey.patch_all()

import io  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from types import FrameType  # noqa: E402

from gevent.hub import Hub, get_hub  # noqa: E402

from engine.cli.app import run  # noqa: E402


def main() -> None:
    """Run the command line of this process and exit with its code."""
    if not os.environ.get("TENANTRY_DEBUG"):
        # What ends a greenlet reaches its caller; the hub would also print a traceback of it.
        Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)
        get_hub().exception_stream = None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _end)
    sys.exit(run(sys.argv[1:]))


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, with all that is cleaned up on the way; what asks twice does not cut that short."""
    # A handler instead of SIG_IGN, which processes that are started from now on would inherit.
    signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt
