"""A converge with nothing pending, beside connecting and running `true`, on the same light hosts.

Both run in turns in one process, so that what else the machine does falls on both. The goal is a ratio
of at most 1.2.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

from engine.hosts.pool import SessionPool  # noqa: E402
from engine.registry.model import Tenant  # noqa: E402
from engine.updater.fleet import converge_many, map_tenants  # noqa: E402
from engine.updater.outcome import Options  # noqa: E402
from engine.updater.workspace import Workspace  # noqa: E402
from tests.lab.light_fleet import LightFleet  # noqa: E402

HOSTS = 20
ROUNDS = 9
GOAL = 1.2
CACHE = "TENANTRY_LAB_CACHE"


def main() -> None:
    """Bring hosts up, bring them to the head, measure, and take everything down again."""
    os.environ.setdefault(CACHE, str(Path(__file__).parents[1] / "var/lab/base"))
    with tempfile.TemporaryDirectory() as directory:
        fleet = LightFleet.create(Path(directory) / "fleet", [f"host-{number}" for number in range(HOSTS)])
        try:
            fleet.write_releases(("2026.10.1", [{"greeting": {"name": "hello", "text": "Hello"}}]))
            fleet.provision(*fleet.workspace().fleet.tenants)
            # Light hosts have no runtime, so nothing is asked about a gateway.
            fleet.change_settings(gateway=None)
            measure(fleet.workspace())
        finally:
            fleet.lab.destroy()


def measure(workspace: Workspace) -> None:
    """Print the medians of both and their ratio."""
    tenants = list(workspace.fleet.tenants.values())

    def converge() -> None:
        outcomes = converge_many(workspace, tenants, Options(), parallel=HOSTS)
        assert all(outcome.result == "unchanged" for outcome in outcomes), outcomes

    def run_true() -> None:
        def work(pool: SessionPool, tenant: Tenant) -> None:
            with pool.session(tenant) as session:
                session.check("true")

        map_tenants(workspace, tenants, work, parallel=HOSTS)

    times = {"converge": [], "true": []}
    for _ in range(ROUNDS):
        times["true"].append(seconds(run_true))
        times["converge"].append(seconds(converge))
    converged, plain = (statistics.median(times[name]) for name in ("converge", "true"))
    print(f"nothing pending on {HOSTS} light hosts, medians of {ROUNDS} rounds in turns")
    print(f"  connect and run `true`   {plain:.3f} s   ({spread(times['true'])})")
    print(f"  converge                 {converged:.3f} s   ({spread(times['converge'])})")
    print(f"  ratio                    {converged / plain:.2f}     (goal: at most {GOAL})")
    sys.exit(0 if converged / plain <= GOAL else 1)


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spread(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f}"


if __name__ == "__main__":
    main()
