"""A clock that passes only when somebody sleeps."""

import datetime


class FakeClock:
    """Starts at `now` Unix seconds; `slept` is how long everybody slept together."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._start = now
        self.slept = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._start + self.slept, datetime.UTC)

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
