"""Health endpoint: one question to every part of this server, 200 when all answer and 503 otherwise."""

import argparse
import json
import socket
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT_SECONDS = 2


def answers(part):
    """Whether a part given as ``http://…`` answers 200, or one given as HOST:PORT greets first."""
    try:
        if part.startswith("http://"):
            with urllib.request.urlopen(part, timeout=TIMEOUT_SECONDS) as answer:
                return answer.status == 200
        host, port = part.rsplit(":", 1)
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
            return connection.recv(3) == b"220"
    except (OSError, ValueError):
        return False


class Handler(BaseHTTPRequestHandler):
    """One request; `server.parts` maps a name to where the part answers."""

    timeout = 20

    def do_GET(self):
        parts = {name: "ok" if answers(part) else "silent" for name, part in self.server.parts.items()}
        is_well = set(parts.values()) <= {"ok"}
        payload = json.dumps({"status": "ok" if is_well else "failing", "parts": parts}).encode()
        self.send_response(200 if is_well else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def main():
    """Serve until the unit is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("parts", nargs="+", metavar="NAME=URL")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.parts = dict(part.split("=", 1) for part in options.parts)
    server.serve_forever()


if __name__ == "__main__":
    main()
