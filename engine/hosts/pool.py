"""Many tenants in one process: one pyinfra state for a batch, one greenlet a tenant.

The process must be monkey patched by gevent before anything else is imported, or the tenants take turns.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, TypeVar

import gevent.lock
import gevent.pool
from pyinfra.api import Config, Inventory, State
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host, ctx_state

from engine.clock import Clock
from engine.hosts.access import DATA_KEY, FIRST_CONTACT_KEY, Access, FirstContact
from engine.hosts.connector import TenantConnector
from engine.hosts.plain import quiet, restored
from engine.hosts.session import Session, session_of
from engine.registry.model import Tenant

quiet()

T = TypeVar("T")


class SessionPool:
    """Sessions over one batch of tenants; at most ``settings.batch_size`` keep pyinfra's setup quick.

    A failing tenant never ends the others. Used as a context manager, once at a time in a process.
    `clock` is the access's clock for what happens within :meth:`run`: a tenant that sleeps by it gives its
    place to another one meanwhile.
    """

    def __init__(self, access: Access, tenants: Iterable[Tenant]) -> None:
        self._tenants = tuple(tenants)
        self._workers: gevent.pool.Pool | None = None
        self._places = gevent.lock.Semaphore(0)
        self.clock: Clock = _AsideClock(access.clock, self._aside)
        self._access = dataclasses.replace(access, clock=self.clock)

    def __enter__(self) -> SessionPool:
        inventory = Inventory(([(tenant.slug, self._data(tenant)) for tenant in self._tenants], {}))
        for host in inventory:
            # Named "@tenant/…", each host would have pyinfra read the metadata of every installed package.
            host.connector_cls = TenantConnector
        self._state = _BatchState(inventory, Config(), check_for_changes=False)
        self._state.current_stage = StateStage.Execute
        self._state.is_executing = True
        for host in self._state.inventory:
            host.connector_data[DATA_KEY] = self._access
        self._previous = ctx_state.get()
        ctx_state.set(self._state)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.kill()
        ctx_state.set(self._previous)

    @contextmanager
    def session(self, tenant: Tenant, first: FirstContact | None = None) -> Iterator[Session]:
        """Connect to `tenant` for the body, in this greenlet; see :func:`engine.hosts.connection.connect`."""
        host = self._state.inventory.get_host(tenant.slug)
        host.connector_data[FIRST_CONTACT_KEY] = first
        with restored(ctx_host, host):
            host.connect(raise_exceptions=True)
            self._state.activate_host(host)
            try:
                yield session_of(host)
            finally:
                host.disconnect()

    def run(self, work: Callable[[Tenant], T], *, parallel: int) -> Mapping[str, T | Exception]:
        """Call `work` for every tenant, `parallel` at a time; what it returned or raised, by slug."""
        self._places = gevent.lock.Semaphore(parallel)
        self._workers = gevent.pool.Pool()
        results: dict[str, T | Exception] = {}

        def attempt(tenant: Tenant) -> None:
            with self._places:
                try:
                    results[tenant.slug] = work(tenant)
                except Exception as error:
                    results[tenant.slug] = error

        for tenant in self._tenants:
            self._workers.spawn(attempt, tenant)
        self._workers.join()
        return {tenant.slug: results[tenant.slug] for tenant in self._tenants}

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Leave this tenant's place to another one for the body, which only waits."""
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()

    def _data(self, tenant: Tenant) -> dict[str, str]:
        return host_data(tenant, self._access)


def host_data(tenant: Tenant, access: Access) -> dict[str, str]:
    """A tenant's host data in pyinfra, as steps and the connector read it."""
    return {
        "tenantry_slug": tenant.slug,
        "tenantry_fleet": str(access.fleet.root),
        "tenantry_state": str(access.state_dir),
        "trade": tenant.trade,
        "role": str(tenant.role),
    }


class _AsideClock:
    """A clock whose sleep happens aside: a tenant in conversation keeps no other one waiting."""

    def __init__(self, clock: Clock, aside: Callable[[], AbstractContextManager[None]]) -> None:
        self._clock = clock
        self._aside = aside

    def now(self) -> datetime.datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        with self._aside():
            self._clock.sleep(seconds)


class _BatchState(State):  # type: ignore[misc]
    """A state in which a failing host is that host's business alone."""

    def fail_hosts(self, hosts_to_fail: set[Any], activated_count: int | None = None) -> None:
        self.failed_hosts.update(hosts_to_fail)
        self.active_hosts -= hosts_to_fail
