"""One authenticated SSH connection to one host, made with the configured identity and pinned keys only.

No agent, no key search, no ``~/.ssh/config``: what is offered and trusted is what the fleet says.
Only the connect phase is ever tried again, because nothing has been run by then.
"""

from __future__ import annotations

import logging
import random
import socket
from contextlib import suppress

import paramiko

from engine.clock import Clock
from engine.errors import AuthenticationRefused, HostKeyMismatch, MissingPart, Unreachable
from engine.hosts.addresses import Target
from engine.hosts.channel import Output, Request, run
from engine.hosts.known_hosts import HostKey
from engine.registry.settings import Transport as Bounds

# paramiko logs what it raises as well; without a handler that would reach the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_TRANSIENT = (OSError, EOFError, paramiko.SSHException)
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
# Encrypts and authenticates in one pass: a stream costs half of what a separate code for each packet does.
_QUICK_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class Connection:
    """An open connection; commands run over it one exec channel each."""

    def __init__(self, target: Target, transport: paramiko.Transport) -> None:
        self.target = target
        self._transport = transport

    def run(self, request: Request) -> Output:
        """See :func:`engine.hosts.channel.run`."""
        return run(self._transport, request, str(self.target))

    @property
    def is_open(self) -> bool:
        return bool(self._transport.is_active())

    def close(self) -> None:
        """End the connection; commands that still run on the host go on."""
        self._transport.close()


def connect(target: Target, bounds: Bounds, clock: Clock, chance: random.Random) -> Connection:
    """Connect to `target`, trying the connect phase again after a random pause, a bounded number of times.

    Raises :class:`HostKeyMismatch`, :class:`AuthenticationRefused` (both at once), :class:`MissingPart`
    for the identity, or :class:`Unreachable`.
    """
    identity = _load_identity(target)
    for attempt in range(1, bounds.connect_attempts + 1):
        try:
            return Connection(target, _connect_once(target, identity, bounds))
        except _TRANSIENT as error:
            if attempt == bounds.connect_attempts:
                raise Unreachable(
                    f"cannot connect: {_reason(error)}",
                    where=str(target),
                    hint="is the server running, and does it accept connections from here?",
                ) from error
            pause = chance.uniform(bounds.retry_minimum_seconds, bounds.retry_maximum_seconds)
            clock.sleep(pause * attempt)
    raise AssertionError("unreachable")


def _connect_once(target: Target, identity: paramiko.PKey, bounds: Bounds) -> paramiko.Transport:
    transport = paramiko.Transport(_open_socket(target, bounds))
    try:
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = bounds.connect_seconds
        _prefer_pinned_types(transport, target)
        _prefer_quick_ciphers(transport)
        transport.start_client(timeout=bounds.connect_seconds)
        _verify_host_key(transport, target)
        _authenticate(transport, target, identity)
        transport.set_keepalive(max(1, round(bounds.keepalive_seconds)))
    except BaseException:
        transport.close()
        raise
    return transport


def _open_socket(target: Target, bounds: Bounds) -> socket.socket:
    connection = socket.create_connection((target.address, target.port), timeout=bounds.connect_seconds)
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A keepalive is due after `keepalive_seconds` of silence; the rest of the bound is for its answer.
    unanswered = max(1.0, bounds.dead_link_seconds - bounds.keepalive_seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unanswered * 1000))
    return connection


def _load_identity(target: Target) -> paramiko.PKey:
    try:
        return paramiko.PKey.from_path(target.identity)
    except FileNotFoundError as error:
        problem, hint = (
            "does not exist",
            "create it with `ssh-keygen -t ed25519`, or set `identity_file` in fleet.yaml",
        )
        cause: Exception = error
    except paramiko.PasswordRequiredException as error:
        problem, hint = "is encrypted", "use a key without a passphrase, readable by this user only"
        cause = error
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        problem, hint = f"cannot be read: {error}", "`ssh-keygen -y -f FILE` shows what is wrong with it"
        cause = error
    raise MissingPart(f"the identity {target.identity} {problem}", where=str(target), hint=hint) from cause


def _prefer_pinned_types(transport: paramiko.Transport, target: Target) -> None:
    """Ask for a key of a pinned type first, so that a host with several keys proves the one that is known."""
    options = transport.get_security_options()
    pinned: list[str] = []
    for key in target.pins.keys:
        pinned += _RSA_SIGNATURES if key.type == "ssh-rsa" else [key.type]
    known = [name for name in pinned if name in options.key_types]
    options.key_types = tuple(dict.fromkeys([*known, *options.key_types]))


def _prefer_quick_ciphers(transport: paramiko.Transport) -> None:
    options = transport.get_security_options()
    known = [name for name in _QUICK_CIPHERS if name in options.ciphers]
    options.ciphers = tuple(dict.fromkeys([*known, *options.ciphers]))


def _verify_host_key(transport: paramiko.Transport, target: Target) -> None:
    shown = transport.get_remote_server_key()
    presented = HostKey(shown.get_name(), shown.asbytes())
    pins = target.pins
    if presented in pins.keys:
        return
    if not pins.keys:
        raise HostKeyMismatch(
            f"no host key is pinned in {pins.source}; the host shows {presented.fingerprint}",
            where=str(target),
            hint="compare the fingerprint with the server's own, then pin it; it is never learned by itself",
        )
    expected = ", ".join(key.fingerprint for key in pins.keys)
    raise HostKeyMismatch(
        f"the host shows {presented.fingerprint}, but {pins.source} pins {expected}",
        where=str(target),
        hint="if the server was rebuilt, pin its new key; if not, somebody else answers at this address",
    )


def _authenticate(transport: paramiko.Transport, target: Target, identity: paramiko.PKey) -> None:
    try:
        left = transport.auth_publickey(target.user, identity)
    except paramiko.AuthenticationException as error:
        _raise_not_admitted(transport, target)
        if not transport.is_active():
            raise paramiko.SSHException("the host closed the connection during authentication") from error
        raise _refused(target, str(error)) from error
    if left:
        raise _refused(target, f"the host wants {', '.join(left)} as well")


def _raise_not_admitted(transport: paramiko.Transport, target: Target) -> None:
    """Raise if the host has told why it lets nobody in, as one does that is booting."""
    # Not get_banner(): it has no answer any more once the host has hung up.
    banner = (getattr(transport.auth_handler, "banner", None) or b"").decode(errors="replace")
    if "booting up" in banner or "not permitted to log in" in banner or "going down" in banner:
        raise AuthenticationRefused(
            f"the host admits no user now: {' '.join(banner.split())}",
            where=str(target),
            hint="try again when /run/nologin is gone",
        )


def _refused(target: Target, reason: str) -> AuthenticationRefused:
    return AuthenticationRefused(
        f"the host refused the identity {target.identity}: {reason.rstrip('.')}",
        where=str(target),
        hint=f"add its public key to the authorized_keys of {target.user} on the server",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
