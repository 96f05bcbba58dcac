"""What both programs are: read the binding once, prove both stores, answer on port 8080."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from storage import Bucket, Database, Unavailable

PORT = 8080
RETRY_SECONDS = 0.5


class Service:
    """The program's state: `trouble` is None once both stores could be used."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.document: Mapping[str, Any] = json.loads(Path(os.environ["CREDENTIALS_DIRECTORY"], "binding").read_text())
        self.database = Database(self.document["database"])
        self.bucket = Bucket(self.document["bucket"])
        self.started = datetime.now(UTC).isoformat()
        self.trouble: str | None = "starting"

    def prove(self) -> None:
        """What has to be done before the program is healthy."""
        self.database.prepare()
        self.bucket.check()

    def run(self, handler: type[Handler]) -> None:
        handler.service = self
        server = ThreadingHTTPServer(("0.0.0.0", PORT), handler)
        threading.Thread(target=self._come_up, daemon=True).start()
        server.serve_forever()

    def _come_up(self) -> None:
        while self.trouble is not None:
            try:
                self.prove()
                self.trouble = None
            except Unavailable as error:
                self.trouble = str(error)
                time.sleep(RETRY_SECONDS)


class Handler(BaseHTTPRequestHandler):
    """Answers; a store that fails is a 503 with one word."""

    service: Service
    protocol_version = "HTTP/1.1"
    timeout = 30

    def answer(self, status: int, content: Any, media_type: str = "application/json") -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def health(self) -> None:
        service = self.service
        if service.trouble is not None:
            self.answer(503, {"error": service.trouble})
            return
        document = service.document
        self.answer(
            200,
            {
                "environment": document["environment"],
                "kind": service.kind,
                "specification": document["specification"],
                "started": service.started,
            },
        )

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except Unavailable as error:
            self.close_connection = True
            self.answer(503, {"error": str(error)})

    def log_message(self, *arguments: Any) -> None:
        """Say nothing: a request's line is the visitor's own business."""
