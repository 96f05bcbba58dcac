"""The run of a rollout over simulated tenants and simulated time, killed wherever it can be."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine.registry.settings import Gate, Strategy, Window
from engine.rollout.runner import Ended, Look, Runner, accept, begin_again, look_again
from engine.rollout.state import Attempt, Baseline, Member, Rollout, Stage, Wave, WaveStage
from engine.rollout.store import RolloutStore
from engine.rollout.verdict import MemberResult

START = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
HEALTHY = Baseline(1, 0, 0, 0.0)


class Killed(BaseException):
    """The process is gone."""


class Time:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime.datetime:
        return self.moment

    def monotonic(self) -> float:
        return (self.moment - START).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.moment += datetime.timedelta(seconds=seconds)


@dataclass
class Tenants:
    """Simulated tenants: what a converge makes of each, and how each is afterwards."""

    results: dict[str, MemberResult] = field(default_factory=dict)
    looks: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    way_back: dict[str, MemberResult] = field(default_factory=dict)
    compared: list[str] = field(default_factory=list)
    there: frozenset[str] = frozenset()
    now: Baseline = HEALTHY
    attempts: dict[str, Attempt] = field(default_factory=dict)
    sick: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    updates: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    before_end: Callable[[str], None] = lambda slug: None

    def converge(
        self,
        attempts: Mapping[str, Attempt],
        *,
        seconds: float,
        begun: Callable[[str], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        for slug, attempt in attempts.items():
            result = self.results.get(slug, MemberResult.UPDATED)
            if result is MemberResult.WAITING or not begun(slug):
                continue
            self.seen.append(slug)
            self.attempts[slug] = attempt
            if result is MemberResult.SILENT:
                continue
            is_new = slug not in self.updates and slug not in self.there
            if result is MemberResult.UPDATED and is_new:
                self.updates.append(slug)
            self.before_end(slug)
            ended(Ended(slug, result, f"run-{slug}", recovery_set=f"set-{slug}" if is_new else None))

    def look(self, slugs: Sequence[str]) -> Mapping[str, Look]:
        return {slug: Look(self.now, self.looks.get(slug, ())) for slug in slugs}

    def compare(self, before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        self.compared += before
        changed = [slug for slug, baseline in before.items() if baseline != self.now]
        return {slug: Look(self.now, ("changed",) if slug in changed else self.sick.get(slug, ())) for slug in before}

    def roll_back(self, sets: Mapping[str, str | None], ended: Callable[[Ended], None]) -> None:
        for slug in sets:
            result = self.way_back.get(slug, MemberResult.ROLLED_BACK)
            if result is MemberResult.ROLLED_BACK:
                self.rolled_back.append(slug)
            ended(Ended(slug, result, f"back-{slug}", None if result is MemberResult.ROLLED_BACK else str(result)))


class Setting:
    """One rollout of two waves and a canary, with its store and time."""

    def __init__(self, directory: Path, strategy: Strategy | None = None, **tenants: Any) -> None:
        self.time = Time()
        self.store = RolloutStore(directory, self.time)
        self.tenants = Tenants(**tenants)
        self.told: list[Mapping[str, Any]] = []
        waves = (("canaries", ("a",)), ("wave 1", ("b", "c")), ("wave 2", ("d", "e")))
        self.store.save(
            Rollout(
                id="r1",
                target="2026.11.29",
                strategy_name="default",
                strategy=strategy or Strategy(soak_seconds=60),
                waves=tuple(Wave(name, tuple(Member(slug) for slug in slugs)) for name, slugs in waves),
                started_at="2026-11-29T12:00:00Z",
            )
        )

    def runner(self, rollout: Rollout | None = None, store: RolloutStore | None = None) -> Runner:
        return Runner(rollout or self.store.load(), store or self.store, self.tenants, self.time, self.told.append)

    def run(self, rollout: Rollout | None = None) -> Rollout:
        return self.runner(rollout).run()


def test_a_good_release_is_promoted_through_every_wave(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    rollout = setting.run()
    assert rollout.stage is Stage.DONE
    assert setting.tenants.updates == ["a", "b", "c", "d", "e"]
    assert [wave.stage for wave in rollout.waves] == [WaveStage.PROMOTED] * 3
    assert setting.time.monotonic() == 3 * 60
    assert setting.store.load() == rollout


def test_a_broken_release_halts_at_its_canary_and_leaves_the_others_untouched(tmp_path: Path) -> None:
    setting = Setting(tmp_path, results={"a": MemberResult.ROLLED_BACK})
    rollout = setting.run()
    assert rollout.stage is Stage.HALTED
    assert setting.tenants.seen == ["a"]
    assert "1 of 1 went wrong: 1 rolled-back" in rollout.reason


def test_a_tenant_that_fell_ill_while_it_soaked_is_put_back_and_halts(tmp_path: Path) -> None:
    setting = Setting(tmp_path, sick={"b": ("the unit restarted 3 times",)})
    rollout = setting.run()
    assert (rollout.stage, setting.tenants.rolled_back) == (Stage.HALTED, ["b"])
    assert setting.tenants.seen == ["a", "b", "c"]
    (member,) = [member for member in rollout.members if member.slug == "b"]
    assert member.problems == ("the unit restarted 3 times",)


def test_one_that_cannot_be_judged_pauses_and_resume_looks_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, sick={"a": None})
    rollout = setting.run()
    assert rollout.stage is Stage.PAUSED
    assert look_again(rollout).waves[0].members[0].result is MemberResult.UPDATED
    setting.tenants.sick.clear()
    assert setting.run(look_again(rollout)).stage is Stage.DONE
    assert setting.tenants.seen.count("a") == 1


def test_a_paused_wave_may_be_promoted_by_a_person(tmp_path: Path) -> None:
    setting = Setting(tmp_path, results={"a": MemberResult.DEFERRED})
    rollout = setting.run()
    assert rollout.stage is Stage.PAUSED
    accepted = accept(rollout)
    assert accepted is not None
    assert setting.run(accepted).stage is Stage.DONE
    assert setting.tenants.seen == ["a", "b", "c", "d", "e"]


def test_silence_until_the_deadline_counts_as_wrong(tmp_path: Path) -> None:
    setting = Setting(tmp_path, results={"a": MemberResult.SILENT})
    rollout = setting.run()
    assert rollout.stage is Stage.HALTED
    assert "1 silent" in rollout.reason


def test_with_the_gate_approve_every_wave_after_the_canaries_waits_for_a_person(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1, gate=Gate.APPROVE))
    rollout = setting.run()
    for reached in (["a"], ["a", "b", "c"]):
        assert (rollout.stage, setting.tenants.seen) == (Stage.AWAITING_APPROVAL, reached)
        assert setting.run().stage is Stage.AWAITING_APPROVAL
        accepted = accept(setting.store.load())
        assert accepted is not None
        rollout = setting.run(accepted)
    assert rollout.stage is Stage.DONE
    assert accept(rollout) is None


def test_retry_takes_the_failed_ones_of_a_wave_and_no_others(tmp_path: Path) -> None:
    strategy = Strategy(soak_seconds=1, error_count=2, error_percent=100)
    setting = Setting(tmp_path, strategy, results={"b": MemberResult.FAILED, "d": MemberResult.BUSY})
    assert setting.run().stage is Stage.DONE
    setting.tenants.results.clear()
    setting.tenants.seen.clear()
    rollout = setting.run(begin_again(setting.store.load()))
    assert (rollout.stage, setting.tenants.seen) == (Stage.DONE, ["b", "d"])
    assert all(member.result is MemberResult.UPDATED for member in rollout.members)


def test_those_that_did_well_soak_again_from_how_they_are_when_others_are_retried(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1), results={"b": MemberResult.BUSY})
    assert setting.run().stage is Stage.DONE
    # Days later: c was restarted for another reason.
    later = Baseline(2, 0, 0, 9e9)
    setting.tenants.now = later
    setting.tenants.results.clear()
    assert setting.run(begin_again(setting.store.load())).stage is Stage.DONE
    assert [member.baseline for member in setting.store.load().waves[1].members] == [later, later]


def test_one_that_was_busy_and_is_there_already_is_not_this_rollouts_to_undo(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1), results={"b": MemberResult.BUSY}, there=frozenset({"b"}))
    setting.run()
    setting.tenants.results.clear()
    setting.run(begin_again(setting.store.load()))
    assert setting.runner().undo(1).waves[1].stage is WaveStage.UNDONE
    assert setting.tenants.rolled_back == ["c"]


def test_undo_puts_a_wave_back(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.run()
    rollout = setting.runner().undo(1)
    assert setting.tenants.rolled_back == ["b", "c"]
    assert rollout.waves[1].stage is WaveStage.UNDONE
    assert rollout.stage is Stage.HALTED


def test_a_halt_that_is_asked_for_begins_no_further_tenant(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.tenants.before_end = lambda slug: setting.store.ask_to_halt("r1", "lunch") if slug == "b" else None
    rollout = setting.run()
    assert (rollout.stage, setting.tenants.seen) == (Stage.HALTED, ["a", "b"])
    assert "lunch" in rollout.reason
    setting.tenants.before_end = lambda slug: None
    assert setting.run().stage is Stage.DONE
    assert setting.tenants.seen == ["a", "b", "c", "d", "e"]


def test_a_halt_is_heard_during_the_soak(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    sleep = setting.time.sleep

    def ask_and_sleep(seconds: float) -> None:
        setting.store.ask_to_halt("r1", "night")
        sleep(seconds)

    setting.time.sleep = ask_and_sleep  # type: ignore[method-assign]
    assert setting.run().stage is Stage.HALTED
    assert setting.tenants.seen == ["a"]


def test_waves_begin_in_their_window_only(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1, windows=(Window("02:00", "03:00"),)))
    assert setting.run().stage is Stage.DONE
    assert setting.time.now() == datetime.datetime(2026, 11, 30, 2, 0, 3, tzinfo=datetime.UTC)


class MortalStore(RolloutStore):
    """Saves or tells so many times and is then killed, before or after the write."""

    def __init__(self, store: RolloutStore, left: int, after: bool) -> None:
        self.__dict__.update(store.__dict__)
        self.left = left
        self.after = after

    def save(self, rollout: Rollout) -> None:
        with self._one_write():
            super().save(rollout)

    def tell(self, rollout: str, event: str, **details: Any) -> dict[str, Any]:
        with self._one_write():
            return super().tell(rollout, event, **details)

    @contextmanager
    def _one_write(self) -> Iterator[None]:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        yield
        if self.left < 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere_and_resumed_none_is_updated_twice_and_none_is_skipped(tmp_path: Path, after: bool) -> None:
    writes = 0
    while True:
        setting = Setting(tmp_path / f"{writes}")
        try:
            setting.runner(store=MortalStore(setting.store, writes, after)).run()
        except Killed:
            rollout = setting.run()
            assert rollout.stage is Stage.DONE
            assert setting.tenants.updates == ["a", "b", "c", "d", "e"], writes
            assert all(member.result is MemberResult.UPDATED for member in rollout.members)
            # Only the one that had begun is begun again.
            assert len(setting.tenants.seen) <= 6
            # Nothing that happened is missing from the story.
            told = list(setting.store.events("r1"))
            ended = [event["tenant"] for event in told if event["event"] == "tenant"]
            assert list(dict.fromkeys(ended)) == ["a", "b", "c", "d", "e"]
            assert [e["wave"] for e in told if e["event"] == "verdict"][-1] == "wave 2"
            assert told[-1]["event"] == "done"
            writes += 1
            continue
        break
    assert writes > 40


@pytest.mark.parametrize("after", [False, True])
def test_an_undo_that_is_killed_anywhere_goes_on_and_nothing_else_may(tmp_path: Path, after: bool) -> None:
    writes = 0
    while True:
        setting = Setting(tmp_path / f"{writes}")
        setting.run()
        try:
            setting.runner(store=MortalStore(setting.store, writes, after)).undo(1)
        except Killed:
            assert accept(setting.store.load()) is None
            rollout = setting.runner().undo(1)
            assert rollout.waves[1].stage is WaveStage.UNDONE
            assert [member.result for member in rollout.waves[1].members] == [MemberResult.ROLLED_BACK] * 2
            # One whose rollback was not kept is asked again; being back already is an answer of the tenant's.
            assert set(setting.tenants.rolled_back) == {"b", "c"}
            writes += 1
            continue
        break
    assert writes > 5


def test_one_that_gave_no_answer_as_its_soak_began_is_looked_at_and_soaks_before_it_is_promoted(tmp_path: Path) -> None:
    setting = Setting(tmp_path, looks={"a": None})
    assert setting.run().stage is Stage.PAUSED
    setting.tenants.looks.clear()
    before = setting.time.monotonic()
    assert setting.run(look_again(setting.store.load())).stage is Stage.DONE
    assert setting.tenants.compared[0] == "a"
    assert setting.time.monotonic() - before == 3 * 60


def test_one_that_is_ill_at_the_first_look_is_put_back_at_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path, looks={"a": ("port 80 does not answer",)})
    rollout = setting.run()
    assert (rollout.stage, setting.tenants.rolled_back) == (Stage.HALTED, ["a"])
    assert rollout.waves[0].members[0].error == "put back to where it was"
    assert setting.time.monotonic() == 0


def test_a_promoted_wave_is_not_looked_at_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, sick={"a": None})
    promoted = accept(setting.run())
    assert promoted is not None and promoted.waves[0].stage is WaveStage.PROMOTED
    assert look_again(promoted) == promoted


def test_a_first_converge_one_after_a_crash_and_one_by_a_persons_word_are_told_apart(tmp_path: Path) -> None:
    strategy = Strategy(soak_seconds=1, error_count=2, error_percent=100)
    setting = Setting(tmp_path, strategy, results={"b": MemberResult.FAILED})
    begun = setting.store.load().with_member(0, "a", result=MemberResult.STARTED)
    setting.run(begun)
    assert setting.tenants.attempts == {
        "a": Attempt.AFTER_CRASH,
        **dict.fromkeys(("b", "c", "d", "e"), Attempt.FIRST),
    }
    retried = begin_again(setting.store.load())
    assert retried.waves[1].members[0].attempt is Attempt.RETRY
    # A person's word holds until the tenant has a result, also where the process dies meanwhile.
    assert retried.with_member(1, "b", result=MemberResult.STARTED).waves[1].members[0].attempt is Attempt.RETRY


def test_undo_leaves_what_this_rollout_did_not_change_and_can_be_repeated_for_the_rest(tmp_path: Path) -> None:
    setting = Setting(tmp_path, there=frozenset({"b"}), way_back={"e": MemberResult.BUSY})
    setting.run()
    assert setting.runner().undo(1).waves[1].stage is WaveStage.UNDONE
    assert setting.tenants.rolled_back == ["c"]
    rollout = setting.runner().undo(2)
    assert (rollout.stage, rollout.waves[2].stage) == (Stage.HALTED, WaveStage.UNDOING)
    assert "not put back yet: e" in rollout.reason
    assert rollout.waves[2].members[1].error == "not put back: busy"
    setting.tenants.way_back.clear()
    assert setting.runner().undo(2).waves[2].stage is WaveStage.UNDONE
    assert setting.tenants.rolled_back == ["c", "d", "e"]


def test_one_that_the_soak_put_back_is_not_put_back_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, sick={"b": ("it restarted",)})
    setting.run()
    setting.runner().undo(1)
    assert setting.tenants.rolled_back == ["b", "c"]


def test_what_the_soak_finds_ill_and_this_rollout_did_not_change_is_left(tmp_path: Path) -> None:
    setting = Setting(tmp_path, there=frozenset({"a"}), sick={"a": ("it restarted",)})
    rollout = setting.run()
    assert (rollout.stage, setting.tenants.rolled_back) == (Stage.HALTED, [])
    assert "before this rollout" in (rollout.waves[0].members[0].error or "")


def test_one_that_was_not_begun_in_the_waves_time_counts_as_wrong(tmp_path: Path) -> None:
    setting = Setting(tmp_path, results={"c": MemberResult.WAITING})
    rollout = setting.run()
    assert rollout.stage is Stage.HALTED
    assert rollout.waves[1].members[1].result is MemberResult.SILENT
    assert "not begun" in (rollout.waves[1].members[1].error or "")


def test_a_halt_that_comes_during_the_last_look_of_a_wave_begins_no_other_and_asks_for_no_approval(
    tmp_path: Path,
) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1, gate=Gate.APPROVE))
    compare = setting.tenants.compare

    def ask_and_compare(before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        setting.store.ask_to_halt("r1", "lunch")
        return compare(before)

    setting.tenants.compare = ask_and_compare  # type: ignore[method-assign]
    rollout = setting.run()
    assert (rollout.stage, rollout.reason) == (Stage.HALTED, "a person halted it: lunch")
    assert setting.store.halt_asked("r1") is None


def test_a_halt_that_comes_after_the_last_wave_is_said_to_be_late(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.tenants.compare = lambda before: (
        (  # type: ignore[method-assign]
            setting.store.ask_to_halt("r1", "lunch") if "e" in before else None
        )
        or {slug: Look(HEALTHY, ()) for slug in before}
    )
    assert setting.run().reason == "every wave is promoted; the halt came too late"
    assert setting.store.halt_asked("r1") is None


def test_a_machine_that_slept_through_the_window_waits_for_the_next_one(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(soak_seconds=1, windows=(Window("13:00", "13:30"),)))
    sleeps = [2 * 3600.0]
    sleep = setting.time.sleep
    setting.time.sleep = lambda seconds: sleep(sleeps.pop() if sleeps else seconds)  # type: ignore[method-assign]
    assert setting.run().stage is Stage.DONE
    begun = [event["at"] for event in setting.told if event["event"] == "wave"]
    assert begun[0] == "2026-11-30T13:00:00Z"


def test_the_state_file_reads_as_it_was_written(tmp_path: Path) -> None:
    setting = Setting(tmp_path, Strategy(windows=(Window("01:00", "02:00", ("mon",), "Europe/Berlin"),)))
    rollout = setting.store.load().with_member(0, "a", baseline=HEALTHY, problems=("x",))
    setting.store.save(replace(rollout, left_out={"z": "on hold"}))
    assert setting.store.load() == replace(rollout, left_out={"z": "on hold"})


def test_what_an_earlier_version_kept_may_have_been_changed_by_its_rollout(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.run()
    document = setting.store.load().with_member(2, "e", result=MemberResult.WAITING).document()
    for wave in document["waves"]:
        for member in wave["members"]:
            for key in ("retry", "is_changed", "recovery_set", "is_back"):
                del member[key]
    read = Rollout.of(document)
    assert [member.slug for member in read.members if member.may_be_put_back] == ["a", "b", "c", "d"]
