"""`tenantry backup` of one light host, beside a shell pipe that does the same work, in turns.

The pipe: `ssh HOST 'tar | zstd' | tee` into a file, a listing (`zstd -d | tar -t`) and `sha256sum`, then `sync` of the
file. Both are whole commands in processes of their own, so that what starting takes counts too. The goal is a ratio of
the medians' throughputs of at least 0.9. Then the state grows, and one more backup may have a peak of memory of at most
1.1 times that of the first size.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import os  # noqa: E402
import shlex  # noqa: E402
import shutil  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

from tests.lab.light_fleet import LightFleet  # noqa: E402

GOAL = 0.9
GROWTH = 1.1
SLUG = "maple"
CACHE = "TENANTRY_LAB_CACHE"
FILE_MEBIBYTES = 8
# Files that compress to about half, as documents, databases and pictures together do.
FILL = """
import os, random, sys
first, last, size = map(int, sys.argv[1:])
os.makedirs("/srv/light/files", exist_ok=True)
chance = random.Random(4)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11))) for _ in range(5000)]
text = " ".join(chance.choices(words, k=size // 10)).encode()[: size // 4 * 3]
for number in range(first, last):
    chance.seed(number)
    # Turned, so that no file is the one before it.
    at = chance.randrange(len(text))
    with open(f"/srv/light/files/{number}", "wb") as file:
        file.write(text[at:] + chance.randbytes(size - len(text)) + text[:at])
"""
# Everything that the light fleet's archive holds.
PATHS = ("srv/light", "etc/light", "var/lib/tenantry/version", "var/lib/tenantry/applied.json")


@dataclass(frozen=True)
class Measured:
    """One command's time, and the most memory that its process had at once."""

    seconds: float
    peak_kibibytes: int


def main() -> None:
    """Bring a host up, fill it, measure both in turns, and take everything down again."""
    options = parsed()
    os.environ.setdefault(CACHE, str(Path(__file__).parents[1] / "var/lab/base"))
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        fleet = LightFleet.create(Path(directory) / "fleet", [SLUG], backup={"kept": 1})
        try:
            fleet.write_releases(("2026.10.1", [{"greeting": {"name": "hello", "text": "Hello"}}]))
            fleet.provision(SLUG)
            fill(fleet, 0, options.mebibytes)
            ratio, peak = measure(fleet, options)
            fill(fleet, options.mebibytes, options.large_mebibytes)
            growth = measure_large(fleet, options) / peak
            print(f"  growth   {growth:.2f}     (goal: at most {GROWTH})")
            sys.exit(0 if ratio >= GOAL and growth <= GROWTH else 1)
        finally:
            fleet.lab.destroy()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=512, help="size of the state (default 512)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default 5)")
    parser.add_argument("--large-mebibytes", type=int, default=5120, help="what it grows to (default 5120)")
    parser.add_argument("--directory", help="where host, archives and fleet are; a temporary one by default")
    return parser.parse_args()


def fill(fleet: LightFleet, mebibytes: int, wanted: int) -> None:
    """Let the state of `mebibytes` grow to `wanted` of them."""
    numbers = f"{mebibytes // FILE_MEBIBYTES} {wanted // FILE_MEBIBYTES} {FILE_MEBIBYTES * 2**20}"
    fleet.run(SLUG, f"python3 - {numbers}", stdin=FILL.encode())


def measure(fleet: LightFleet, options: argparse.Namespace) -> tuple[float, int]:
    """Print the medians of both; returns the ratio of their throughputs, and the peak of a backup in KiB."""
    times: dict[str, list[float]] = {"pipe": [], "backup": []}
    peaks = []
    for _ in range(options.rounds):
        times["pipe"].append(pipe(fleet).seconds)
        backup = measured(engine_command(fleet))
        times["backup"].append(backup.seconds)
        peaks.append(backup.peak_kibibytes)
    piped, backed = (statistics.median(times[name]) for name in ("pipe", "backup"))
    print(f"{options.mebibytes} MiB of state on a light host, medians of {options.rounds} rounds in turns")
    for name, middle in (("pipe", piped), ("backup", backed)):
        print(f"  {name:<8} {middle:.2f} s  {options.mebibytes / middle:.0f} MiB/s   ({spread(times[name])})")
    print(f"  ratio    {piped / backed:.2f}     (goal: at least {GOAL})")
    print(f"  peak memory of backup: {max(peaks) / 1024:.1f} MiB")
    return piped / backed, max(peaks)


def measure_large(fleet: LightFleet, options: argparse.Namespace) -> int:
    """Print time and peak of one backup of the larger state; returns the peak in KiB."""
    backup = measured(engine_command(fleet))
    size = options.large_mebibytes
    print(f"{size} MiB of state: {backup.seconds:.1f} s, {size / backup.seconds:.0f} MiB/s")
    print(f"  peak memory of backup: {backup.peak_kibibytes / 1024:.1f} MiB")
    return backup.peak_kibibytes


def engine_command(fleet: LightFleet) -> Sequence[str]:
    return (str(Path(sys.executable).with_name("tenantry")), "-C", str(fleet.root), "backup", SLUG)


def pipe(fleet: LightFleet) -> Measured:
    """The same work by a shell, into a directory that is emptied afterwards."""
    target = fleet.state / "piped"
    target.mkdir()
    try:
        took = measured(("bash", "-euo", "pipefail", "-c", script(fleet, target)))
        assert (target / "listing").read_text().count("\n") > 0
        return took
    finally:
        shutil.rmtree(target)


def script(fleet: LightFleet, target: Path) -> str:
    host = fleet.lab.find_required(SLUG)
    known = target / "known_hosts"
    known.write_text(f"{host.address} {host.host_key}\n")
    options = ("-F", "none", "-i", str(fleet.state / "ssh/id_ed25519"), "-o", "BatchMode=yes")
    pins = ("-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes")
    remote = f"sudo sh -c {shlex.quote(f'tar -C / -cf - {shlex.join(PATHS)} | zstd -3 --check')}"
    ssh = shlex.join(("ssh", *options, *pins, f"{host.ssh_user}@{host.address}", remote))
    return f"""
cd {shlex.quote(str(target))}
mkfifo to-list to-sum
zstd -dc < to-list | tar -tf - > listing & list=$!
sha256sum < to-sum > digest & sum=$!
{ssh} | tee to-list to-sum > archive
wait $list
wait $sum
sync archive
"""


def measured(command: Sequence[str]) -> Measured:
    """Run a command to its end, which must be a good one."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - start
        output.seek(0)
        assert status == 0, output.read().decode(errors="replace")
    process.returncode = 0
    return Measured(took, usage.ru_maxrss)


def spread(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} s"


if __name__ == "__main__":
    main()
