"""The stand-in model shows in its answer which personality and which history reached it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engine.steps.catalog import load_module

STUB = load_module(Path(__file__).parents[2] / "deploys/model_stub.py")
MESSAGES = [
    {"role": "system", "content": "\nYou are Rosa's assistant.\nBe kind."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": [{"type": "text", "text": "And é?"}]},
]
ANSWER = "personality: «You are Rosa's assistant.» turns: 2 first: «Hello» last: «And é?»"


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[str]:
    server = STUB.StubServer(("127.0.0.1", 0), str(tmp_path / "log"))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_it_lists_its_model(stub: str) -> None:
    assert httpx.get(f"{stub}/v1/models").json()["data"][0]["id"] == "stub"
    assert httpx.get(f"{stub}/v1/other").status_code == 404


def test_it_answers_whole_and_logs_the_turn(stub: str, tmp_path: Path) -> None:
    reply = httpx.post(f"{stub}/v1/chat/completions", json={"model": "m", "messages": MESSAGES}).json()
    assert reply["choices"][0]["message"]["content"] == ANSWER
    logged = json.loads((tmp_path / "log").read_text())
    assert logged == {"model": "m", "provider": None, "answer": ANSWER, "messages": MESSAGES}


def test_it_answers_in_a_stream(stub: str) -> None:
    request = {"model": "m", "stream": True, "messages": MESSAGES}
    events = httpx.post(f"{stub}/v1/chat/completions", json=request).text.strip().split("\n\n")
    first, last, end = (event.removeprefix("data: ") for event in events)
    assert json.loads(first)["choices"][0]["delta"]["content"] == ANSWER
    assert json.loads(last)["choices"][0]["finish_reason"] == "stop"
    assert end == "[DONE]"
