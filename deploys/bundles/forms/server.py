"""Forms store: `POST /NAME` keeps a form's fields, `GET /health` says that the store can be read.

Submissions are read on the host alone, with `sqlite3 /var/lib/tenant-forms/forms.db`.
"""

import argparse
import json
import re
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

LIMIT_BYTES = 64 * 1024
NAME = re.compile(r"/([a-z][a-z0-9-]{0,63})\Z")
SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY,
    form TEXT NOT NULL,
    fields TEXT NOT NULL,
    received_at REAL NOT NULL
)
"""


def connect(database):
    """Open the store; a submission is on the disk before its sender hears so."""
    connection = sqlite3.connect(database, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class Handler(BaseHTTPRequestHandler):
    """One request; `server.database` is the store's path."""

    timeout = 20

    def do_GET(self):
        if self.path != "/health":
            self.answer(404, {"error": "no such page"})
            return
        connection = connect(self.server.database)
        try:
            (count,) = connection.execute("SELECT count(*) FROM submissions").fetchone()
        finally:
            connection.close()
        self.answer(200, {"status": "ok", "submissions": count})

    def do_POST(self):
        form, body = NAME.match(self.path), self.body()
        if body is None:
            self.answer(413, {"error": "the form is too long"})
            return
        fields = fields_of(body)
        if not form or not fields:
            self.answer(400, {"error": "send a form with at least one field to /forms/NAME"})
            return
        connection = connect(self.server.database)
        try:
            with connection:
                row = (form[1], json.dumps(fields, ensure_ascii=False), time.time())
                connection.execute("INSERT INTO submissions (form, fields, received_at) VALUES (?, ?, ?)", row)
        finally:
            connection.close()
        self.answer(201, {"status": "kept"}, page="Thank you. Your message has arrived.")

    def body(self):
        """The request's body, or None for one above the limit."""
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isascii() and length.isdecimal() else 0
        # Read also where it is refused: a proxy that is cut off while it sends reports an error of its own.
        body = self.rfile.read(min(size, 16 * LIMIT_BYTES))
        return body if size <= LIMIT_BYTES else None

    def answer(self, status, body, page=None):
        """Send one JSON object, or `page` as a sentence to a browser."""
        if page and "text/html" in self.headers.get("Accept", ""):
            payload = f"<!doctype html><title>{page}</title><p>{page}".encode()
            kind = "text/html; charset=utf-8"
        else:
            payload, kind = json.dumps(body).encode(), "application/json"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def fields_of(body):
    """The fields of a form by name, or None for what is no form."""
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return None


def main():
    """Serve until the unit is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--database", required=True)
    options = parser.parse_args()
    connection = connect(options.database)
    connection.execute(SCHEMA)
    connection.close()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.database = options.database
    server.serve_forever()


if __name__ == "__main__":
    main()
