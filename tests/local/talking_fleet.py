"""A small fleet whose gateway keeps prompts of conversations, with its files below one directory of this machine."""

from __future__ import annotations

from pathlib import Path

from tests.fleets import write_whole_fleet

NOTICE = "Our talk starts fresh."

SETTINGS = """\
brand: Queva
gateway:
  unit: gateway.service
  address: 127.0.0.1
  port: 8642
  health_path: /health
  state_file: {base}/state.json
  database: {base}/state.db
  config_file: {base}/config.yaml
  state_directory: {base}
  runtime_link: /opt/current
  channels: [local]
rendered:
  - name: personality
    template: personality.md.j2
    path: {base}/SOUL.md
    owner: root
    group: root
    mode: "0644"
    restart: true
sessions:
  personality: personality
  follows: You run on a runtime.
  table: sessions
  columns: {{id: id, prompt: prompt, ended: ended}}
  policy: reset
  reset: {{interpreter: [python3], program: deploys/end.py, notice: {notice}}}
notify: {{target_secret: hook}}
"""


def write_talking_fleet(root: Path) -> Path:
    """Write the fleet, whose tenant's files are in `root`/tenant; returns `root`."""
    write_whole_fleet(root)
    base = root / "tenant"
    base.mkdir()
    (root / "inventory/fleet.yaml").write_text(SETTINGS.format(base=base, notice=NOTICE))
    (root / "deploys/end.py").write_text("")
    (root / "hook").write_text("json://receiver")
    (root / "hook").chmod(0o600)
    return root
