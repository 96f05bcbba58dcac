"""Random manifests over a few steps that write a few keys, and the model that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from engine.releases.model import Manifest, StepEntry, StepInfo
from tests.unit.fleets import entry, make_catalog, make_manifest, make_release, make_step

TRADES = ("real-estate", "bakery")
ROLES = ("test", "client")
KEYS = ("file:/a", "file:/b", "unit:c")

entries = st.builds(
    lambda name, size: entry(name, size=size) if size else entry(name),
    st.sampled_from(["one", "two", "three", "four"]),
    st.integers(0, 1),
)


def conditions(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(values), max_size=1)


@st.composite
def catalogs(draw: st.DrawFn) -> dict[str, StepInfo]:
    """Steps of every condition that each write some of the keys."""
    return make_catalog(
        *(
            make_step(
                name,
                writes=draw(st.frozensets(st.sampled_from(KEYS), max_size=2)),
                takes=["size"],
                trades=draw(conditions(TRADES)),
                roles=draw(conditions(ROLES)),
            )
            for name in ("one", "two", "three", "four")
        )
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """One to six releases of up to three distinct entries."""
    steps = draw(st.lists(st.lists(entries, max_size=3, unique=True), min_size=1, max_size=6))
    return make_manifest(*(make_release(f"2026.10.{day}", *named) for day, named in enumerate(steps, start=1)))


def final_writers(run: Iterable[StepEntry], catalog: Mapping[str, StepInfo]) -> dict[str, StepEntry]:
    """Where running `run` in order ends: the last writer of each key."""
    last: dict[str, StepEntry] = {}
    for step in run:
        for key in catalog[step.name].writes(step.arguments):
            last[key] = step
    return last
