"""A light tenant with something to lose, and what it is made of."""

from __future__ import annotations

import json
from typing import Any

from engine.backups.restore import Wish, restore
from engine.backups.run import backup_many, store_of
from engine.backups.store import StoredArchive
from engine.updater.events import Reporter
from engine.updater.outcome import Outcome
from tests.lab.light_fleet import LightFleet

HEAD = "2026.10.3"

FILL = """
set -e
id keeper >/dev/null 2>&1 || useradd --system --no-create-home keeper
mkdir -p /srv/light/diary/deep /srv/light/cache /etc/light
head -c 30000 /dev/urandom > /srv/light/diary/noise
echo 'first entry' > /srv/light/diary/deep/entry
chmod 0640 /srv/light/diary/deep/entry
chown -R keeper:keeper /srv/light/diary
ln -sfn deep /srv/light/diary/newest
echo again > /srv/light/cache/blob
echo hello > /etc/light/greeting
python3 - <<'END'
import sqlite3
c = sqlite3.connect('/srv/light/ledger.db')
c.execute('CREATE TABLE IF NOT EXISTS entries (n INTEGER)')
c.execute('DELETE FROM entries')
c.executemany('INSERT INTO entries VALUES (?)', [(n,) for n in range(500)])
c.execute('PRAGMA user_version = 7')
c.commit()
END
"""

# The gateway writes these while it runs; databases are compared by their rows.
SEEN = """
import grp, hashlib, json, os, pwd, sqlite3, stat
skip = ('/srv/light/cache', '/srv/light/gateway_state.json')
found = {}
def named(find, number):
    try:
        return find(number)[0]
    except KeyError:
        return number
def see(path):
    if path in skip or path.endswith(('.db', '.db-wal', '.db-shm')):
        return
    s = os.lstat(path)
    entry = [oct(s.st_mode), named(pwd.getpwuid, s.st_uid), named(grp.getgrgid, s.st_gid)]
    if stat.S_ISLNK(s.st_mode):
        entry.append(os.readlink(path))
    elif stat.S_ISREG(s.st_mode):
        entry.append(hashlib.sha256(open(path, 'rb').read()).hexdigest())
        entry.append(s.st_mtime_ns)
    found[path] = entry
    if stat.S_ISDIR(s.st_mode):
        for name in sorted(os.listdir(path)):
            see(path + '/' + name)
for root in ('/srv/light', '/etc/light'):
    if os.path.lexists(root):
        see(root)
for name in os.listdir('/etc/systemd/system'):
    if name.startswith('light-'):
        see('/etc/systemd/system/' + name)
rows = {}
for name in ('state.db', 'ledger.db'):
    if os.path.exists('/srv/light/' + name):
        c = sqlite3.connect('file:/srv/light/' + name + '?mode=ro', uri=True)
        for (table,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows[name + ':' + table] = c.execute('SELECT COUNT(*) FROM ' + table).fetchone()[0]
print(json.dumps({'files': found, 'rows': rows}))
"""


def fill(fleet: LightFleet, slug: str = "maple") -> None:
    """Give the tenant files of another account, a link, a cache, a second database, and some conversation."""
    fleet.run(slug, FILL)
    for number in range(3):
        fleet.say(slug, f"message {number}", age_seconds=60)


def seen(fleet: LightFleet, slug: str = "maple") -> dict[str, Any]:
    """Everything that the tenant is declared to be made of: files with owners, modes and digests; rows of tables."""
    found: dict[str, Any] = json.loads(fleet.run(slug, "python3 -", stdin=SEEN.encode()))
    return found


def back_up(fleet: LightFleet, slug: str = "maple") -> StoredArchive:
    """An archive of the tenant as it is now."""
    workspace = fleet.workspace()
    tenant = workspace.fleet.tenants[slug]
    (outcome,) = backup_many(workspace, [tenant])
    assert outcome.error is None, outcome.error
    stored = store_of(workspace, tenant).newest()
    assert stored is not None
    return stored


def restored(
    fleet: LightFleet,
    slug: str = "maple",
    *,
    archive: str | None = None,
    path: str | None = None,
    onto: bool = False,
    report: Reporter | None = None,
) -> Outcome:
    """How a restore of the tenant ended."""
    workspace = fleet.workspace(report)
    return restore(workspace, workspace.fleet.tenants[slug], Wish(archive, path), onto=onto)


def is_alive(fleet: LightFleet, slug: str = "maple") -> bool:
    """Whether the gateway runs, answers and has reported its channel."""
    answer = fleet.run(slug, "systemctl is-active light-gateway && curl -sf http://127.0.0.1:8642/health", check=False)
    return answer.startswith("active") and '"ok"' in answer and fleet.is_connected(slug)


def leftovers(fleet: LightFleet, slug: str = "maple") -> str:
    """What a restore must not leave on the tenant."""
    return fleet.run(
        slug,
        "ls -d /var/lib/tenantry/restore /var/lib/tenantry/deadman /etc/systemd/system/tenantry-deadman.* "
        "2>/dev/null || true",
    )
