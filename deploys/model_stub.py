"""A stand-in for the language model: just enough of the OpenAI protocol for real conversations.

It answers `GET /v1/models` and `POST /v1/chat/completions` (streamed or whole). The answer quotes the
first line of the system prompt and counts and repeats what the user said, so that a test can see which
personality and which history reached the model.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def text_of(content: Any) -> str:
    """Return a message's text, whether it came as one string or as a list of parts."""
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return str(content or "")


def answer_to(messages: list[dict[str, Any]]) -> str:
    """Compose the answer: personality quoted, turns counted, first and last question repeated."""
    system = "\n".join(text_of(m.get("content")) for m in messages if m.get("role") == "system")
    personality = next((line.strip() for line in system.splitlines() if line.strip()), "none")
    turns = [text_of(m.get("content")).strip() for m in messages if m.get("role") == "user"]
    first, last = (turns[0], turns[-1]) if turns else ("", "")
    return f"personality: «{personality}» turns: {len(turns)} first: «{first}» last: «{last}»"


def completion(model: str, answer: str) -> dict[str, Any]:
    """Return the whole answer as one completion object."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "stub", "object": "chat.completion", "created": int(time.time()), "model": model,
        "choices": [choice], "usage": usage,
    }  # fmt: skip


def chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one server-sent event of a streamed completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "stub", "object": "chat.completion.chunk", "created": int(time.time()), "model": model,
        "choices": [choice],
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n".encode()


class Handler(BaseHTTPRequestHandler):
    """One request to the stub. `server.log_path` gets one JSON line a turn: what came and what was answered."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            self.send_error(404)
            return
        self.reply({"object": "list", "data": [{"id": "stub", "object": "model", "context_length": 131072}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        messages = request.get("messages", [])
        model, answer = str(request.get("model", "stub")), answer_to(messages)
        self.record({"model": model, "provider": request.get("provider"), "answer": answer, "messages": messages})
        if request.get("stream"):
            self.stream(model, answer)
        else:
            self.reply(completion(model, answer))

    def reply(self, body: dict[str, Any]) -> None:
        """Send one JSON object."""
        payload = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def stream(self, model: str, answer: str) -> None:
        """Send the answer as server-sent events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(chunk(model, {"role": "assistant", "content": answer}))
        self.wfile.write(chunk(model, {}, "stop") + b"data: [DONE]\n\n")

    def record(self, line: dict[str, Any]) -> None:
        """Append one line to the log file, if there is one."""
        server = self.server
        if isinstance(server, StubServer) and server.log_path:
            with server.log_lock, open(server.log_path, "a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep the console quiet: the log file is the record."""


class StubServer(ThreadingHTTPServer):
    """The stub with its log file."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], log_path: str | None) -> None:
        super().__init__(address, Handler)
        self.log_path = log_path
        self.log_lock = threading.Lock()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--log", default=None)
    options = parser.parse_args()
    StubServer((options.host, options.port), options.log).serve_forever()


if __name__ == "__main__":
    main()
