"""A whole small fleet, written to a directory: registry, settings, manifest, steps and templates."""

from __future__ import annotations

import subprocess
from pathlib import Path

HEAD = "2026.10.23"
VERSIONS = ("2026.10.22", "2026.10.22.2", HEAD)

_TENANT = """\
  {slug}:
    owner_name: {owner}
    business: {owner}'s place
    trade: {trade}
    role: {role}
    daily_backup: true
    text_updates: false
    provider: {{name: lab}}
    forwarding_address: {slug}@{slug}.example
    page_host: {slug}.example
"""

TENANTS = "tenants:\n" + "".join(
    _TENANT.format(slug=slug, owner=owner, trade=trade, role=role)
    for slug, owner, trade, role in (
        ("maple", "Rosa", "real-estate", "test"),
        ("harbor", "Jonas", "bakery", "client"),
    )
)

SETTINGS = """\
brand: Queva
rendered:
  - name: personality
    template: personality.md.j2
    path: /srv/SOUL.md
    owner: root
    group: root
    mode: "0644"
"""

MANIFEST = """\
releases:
  - version: "2026.10.22"
    title: A greeting
    steps: [greeting]
    details: Puts a greeting on the host.
    owner_note: Your assistant greets you.
  - version: "2026.10.22.2"
    title: For estate agents
    steps: [listings]
    details: Only for real estate.
    owner_note: Your assistant knows listings.
  - version: "2026.10.23"
    title: Plain words
    steps: [polite, {greeting: {word: hi}}]
    details: A patch, and the greeting with another word.
    owner_note: Your assistant speaks plainly.
"""

STEPS = {
    "greeting": """\
from engine.steps import Answer, StepContext, install


@install(precondition=lambda context: Answer.DOES_NOT_HOLD, writes=("file:/etc/greeting",))
def greeting(context: StepContext, *, word: str = "hello"):
    yield f"echo {word} > /etc/greeting"
""",
    "listings": """\
from engine.steps import Answer, StepContext, install


@install(precondition=lambda context: Answer.HOLDS, trades=("real-estate",), writes=("file:/etc/listings",))
def listings(context: StepContext):
    yield "touch /etc/listings"
""",
    "polite": """\
from engine.steps import patch


@patch(file="personality")
def polite(text: str) -> str:
    return text if "plainly" in text else text + "Speak plainly.\\n"
""",
}

PERSONALITY = "You work for {{ tenant.owner_name }}.\n"


def write_whole_fleet(root: Path, *, tenants: str = TENANTS, manifest: str = MANIFEST) -> Path:
    """Write a fleet that every offline command can read, and return `root`."""
    files = {
        "inventory/tenants.yaml": tenants,
        "inventory/fleet.yaml": SETTINGS,
        "releases.yaml": manifest,
        "templates/personality.md.j2": PERSONALITY,
        **{f"deploys/steps/{name}.py": text for name, text in STEPS.items()},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def commit(directory: Path, message: str = "A revision") -> None:
    """Commit everything in `directory`, made a git repository first if it is none."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
    for arguments in (("init", "--quiet"), ("add", "--all"), (*identity, "commit", "--quiet", "-m", message)):
        subprocess.run(["git", "-C", str(directory), *arguments], check=True, capture_output=True)
