"""Sending through Apprise to real ports of this machine: what became of a message is each sender's own."""

from __future__ import annotations

import http.server
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.updater.notify import Delivery, send

CLOSED = "json://127.0.0.1:1/secret-token"


@pytest.fixture
def slow_refusal():
    """The URL of a web hook that answers 500, but only after `let_go` is set."""
    asked, let_go = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.set()
            let_go.wait(30)
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}/", asked, let_go
    let_go.set()
    server.shutdown()
    server.server_close()


def test_a_connection_that_breaks_is_unknown():
    assert send(CLOSED, "x") is Delivery.UNKNOWN


def test_a_refusal_is_not_taken_for_another_tenants_broken_connection(slow_refusal):
    url, asked, let_go = slow_refusal
    with ThreadPoolExecutor() as pool:
        refused = pool.submit(send, url, "x")
        assert asked.wait(30)
        assert send(CLOSED, "y") is Delivery.UNKNOWN
        let_go.set()
        assert refused.result() is Delivery.REFUSED


def test_a_plugin_that_fails_by_itself_leaves_the_delivery_unknown():
    # No JSON can hold half a surrogate pair as UTF-8, so the plugin raises instead of answering.
    assert send(CLOSED.replace("json", "xml"), "half \ud800 pair") is Delivery.UNKNOWN
