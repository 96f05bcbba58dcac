"""A small fleet whose steps say what they leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.updater.workspace import Workspace, open_workspace
from tests.fleets import write_whole_fleet

SETTINGS = """\
brand: Queva
gateway:
  unit: gateway.service
  address: 127.0.0.1
  port: 8642
  health_path: /health
  state_file: /srv/state.json
  database: /srv/state.db
  config_file: /srv/config.yaml
  state_directory: /srv
  runtime_link: /opt/current
  channels: [local]
services:
  - proxy.service
  - {unit: forms.service, since: "2026.10.23"}
routes:
  - {name: page, url: "http://127.0.0.1/", since: "2026.10.22.2"}
rendered:
  - {name: personality, template: personality.md.j2, path: /srv/SOUL.md, owner: root, group: root, mode: "0644"}
  - name: config
    template: config.yaml.j2
    path: /srv/config.yaml
    owner: root
    group: root
    mode: "0640"
    since: "2026.10.22.2"
drift: {clock_skew_seconds: 2}
"""

MANIFEST = """\
releases:
  - version: "2026.10.22"
    title: One
    steps: [greeting, listings]
    details: One.
    owner_note: One.
  - version: "2026.10.22.2"
    title: Two
    steps: [{greeting: {word: hi}}, {runtime: {version: "1.0"}}]
    details: Two.
    owner_note: Two.
  - version: "2026.10.23"
    title: Three
    steps: [forms, hosts, cleanup, {runtime: {version: "2.0"}}]
    details: Three.
    owner_note: Three.
"""

STEPS = {
    "greeting": """\
from engine.steps import Answer, File, StepContext, install

def expected(place):
    return [File("/etc/greeting", content=place.arguments["word"].encode()), File("/etc/old/one", content=b"")]

@install(precondition=lambda context: Answer.HOLDS, writes=("file:/etc/greeting", "directory:/etc/old"),
         expects=expected)
def greeting(context: StepContext, *, word: str = "hello"):
    yield f"echo {word}"
""",
    "listings": """\
from engine.steps import Answer, EditableFile, StepContext, install

@install(precondition=lambda context: Answer.HOLDS, trades=("real-estate",), writes=("file:/etc/listings",),
         expects=(EditableFile("/etc/listings", ("homes",)),))
def listings(context: StepContext):
    yield "touch"
""",
    "forms": """\
from engine.steps import Answer, Group, Package, StepContext, Unit, install, shipped

FILES = {"/opt/forms/server.py": "server.py"}

@install(bundle="forms", precondition=lambda context: Answer.HOLDS,
         writes=("directory:/opt/forms", "unit:forms.service", "package:sqlite3", "group:readers"),
         expects=(*shipped(FILES), Unit("forms.service"), Package("sqlite3"), Group("readers", ("runtime",))))
def forms(context: StepContext):
    yield "touch"
""",
    "hosts": """\
from engine.steps import Model, Value, patch

@patch(file="config", writes=("model:chat",), expects=(Value("config", "routing.only", ["a", "b"]), Model("chat", "m")))
def hosts(text: str) -> str:
    return text if "routing" in text else text + "routing: {only: [a, b]}\\n"
""",
    "cleanup": """\
from engine.steps import Absent, Answer, StepContext, install

@install(precondition=lambda context: Answer.HOLDS, writes=("file:/etc/old",), expects=(Absent("/etc/old"),))
def cleanup(context: StepContext):
    yield "rm"
""",
    "runtime": """\
from engine.steps import Answer, StepContext, upgrade

@upgrade(link="/opt/current", directory="/opt/{version}", precondition=lambda context: Answer.HOLDS)
def runtime(context: StepContext, *, version: str):
    yield "install"
""",
}

BOOTSTRAP = """\
from engine.steps import Directory, Link

def expects(place):
    yield Directory("/srv", mode="0750")
    yield Link("/opt/current", "/opt/0.9")
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = write_whole_fleet(tmp_path, manifest=MANIFEST)
    for path in (root / "deploys/steps").glob("*.py"):
        path.unlink()
    files = {
        "inventory/fleet.yaml": SETTINGS,
        "templates/config.yaml.j2": "model: {default: m}\n",
        "deploys/bootstrap.py": BOOTSTRAP,
        "deploys/bundles/forms/server.py": "serve()\n",
        **{f"deploys/steps/{name}.py": text for name, text in STEPS.items()},
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return open_workspace(root)
