"""An inventory of hosted environments for tests: one with storage of its own, one member of a tier."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]

OWN = "0c7d3c5e-94a1-4a3f-8f52-3b6f5b1f0a9e"
MEMBER = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
TIER = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
PIN = "sha256:" + "0" * 64

ENVIRONMENTS = f"""\
parents:
  postgres: {{pin: "{PIN}"}}
  objects: {{pin: "{PIN}", successors: ["sha256:{"a" * 64}"]}}
projects:
  shop: {{title: The shop}}
tiers:
  common: {{uuid: {TIER}, project: shop}}
environments:
  {OWN}:
    project: shop
    tenant: maple
    stage: production
    lifetime: durable
    release: first
    access_policy: invited
    hostname: shop.example.com
  {MEMBER}:
    project: shop
    tenant: maple
    stage: trial
    lifetime: disposable
    release: first
    tier: common
"""


def write_environments(root: Path, text: str = ENVIRONMENTS) -> Path:
    """Write the inventory `text` below `root` and return `root`."""
    (root / "inventory").mkdir(parents=True, exist_ok=True)
    (root / "inventory/environments.yaml").write_text(text)
    return root


def write_hosted_fleet(root: Path, text: str = ENVIRONMENTS) -> Path:
    """Have the fleet in `root` host the environments of `text`, of the release notes-1, and return `root`."""
    for name in ("notes-1", "notes-2"):
        place = f"deploys/environments/{name}"
        shutil.copytree(REPOSITORY / place, root / place)
    settings = root / "inventory/fleet.yaml"
    content = yaml.safe_load(settings.read_text())
    content["lab"] = {"packages": yaml.safe_load((REPOSITORY / "inventory/fleet.yaml").read_text())["lab"]["packages"]}
    settings.write_text(yaml.safe_dump(content))
    return write_environments(root, text.replace("release: first", "release: notes-1"))
