"""Settings of the owner: `GET /` gives all of them, `PUT /NAME` changes one, `DELETE /NAME` takes it back."""

import argparse
import json
import os
import pathlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT_BYTES = 4096
# What the owner may set, and how a value looks.
KNOWN = {
    "answer_language": re.compile(r"[a-z]{2}"),
    "daily_brief_at": re.compile(r"([01]\d|2[0-3]):[0-5]\d"),
    "away_until": re.compile(r"\d{4}-\d{2}-\d{2}"),
    "signature": re.compile(r"[^\x00-\x1f]{1,200}"),
}


class Settings:
    """The settings in one JSON file, which is replaced whole and on the disk before a change is confirmed."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def change(self, name, value):
        with self.lock:
            settings = {**self.read(), name: value}
            partial = self.path.with_name(".settings.json")
            with open(partial, "w", encoding="utf-8") as file:
                json.dump({key: item for key, item in sorted(settings.items()) if item is not None}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(self.path)


class Handler(BaseHTTPRequestHandler):
    """One request; `server.settings` holds the settings."""

    timeout = 20

    def do_GET(self):
        if self.path in ("/", "/health"):
            settings = self.server.settings.read()
            self.answer(200, settings if self.path == "/" else {"status": "ok", "settings": len(settings)})
        else:
            self.answer(404, {"error": "no such page"})

    def do_PUT(self):
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isascii() and length.isdecimal() else 0
        value = self.rfile.read(min(size, LIMIT_BYTES)).decode(errors="replace")
        pattern = KNOWN.get(self.path[1:])
        if pattern is None:
            self.answer(404, {"error": f"no such setting; there are {', '.join(KNOWN)}"})
        elif size > LIMIT_BYTES or not pattern.fullmatch(value):
            self.answer(400, {"error": f"wanted: {pattern.pattern}"})
        else:
            self.server.settings.change(self.path[1:], value)
            self.answer(200, {self.path[1:]: value})

    def do_DELETE(self):
        if self.path[1:] not in KNOWN:
            self.answer(404, {"error": "no such setting"})
            return
        self.server.settings.change(self.path[1:], None)
        self.answer(200, {})

    def answer(self, status, body):
        payload = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def main():
    """Serve until the unit is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=pathlib.Path, required=True)
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.settings = Settings(options.file)
    server.serve_forever()


if __name__ == "__main__":
    main()
