"""Keys of environments: an object user, and the place that the policy of one bucket has for it.

Members of a tier share its bucket, so its policy names several users, and no call of the store changes a policy only
if it is still as it was read. The policy is therefore never edited: it follows from the claims on keys for that
bucket, each of which is there before its user is let in. Whoever writes the policy looks at both again until they
agree, so whoever writes it last leaves it right, also where two processes do so at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.environments.drivers import objects
from engine.environments.drivers.base import CreateRequest, KeyPair, Kind, Owned
from engine.environments.drivers.claims import Claim, Claims
from engine.environments.drivers.objects_store import Missing, ObjectStore, bucket_tags, part
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble, effects_on, looking
from engine.environments.names import Owner, names_of, uuid_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present
from engine.errors import DriverRefused, UnknownState

_ACTIONS = (
    *("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload", "ListMultipartUploadParts"),
    *("ListBucket", "GetBucketLocation", "ListBucketMultipartUploads"),
)
_USER = "arn:aws:iam::000000000000:user/"
_LOOKS = 10
"""How often a policy is compared with the claims before so many changes at once count as trouble."""


@dataclass(frozen=True)
class _User:
    """A user of the store with all that it can sign and do, its places in policies of buckets apart."""

    access_keys: tuple[str, ...]
    attached: tuple[str, ...]
    inline: tuple[str, ...]

    @property
    def bare(self) -> bool:
        """Whether it is as an interrupted creation leaves it."""
        return not (self.access_keys or self.attached or self.inline)


@dataclass(frozen=True)
class _Found:
    """What there is under a key's name; `let_in` are those whom the policy of the claimed bucket names."""

    name: str
    claim: Claim | None
    user: _User | None
    let_in: tuple[str, ...] = ()
    strangers: bool = False
    """Whether that policy lets in anybody who has no claim, or does anything else than the engine's."""

    @property
    def present(self) -> bool:
        return self.claim is not None or self.user is not None

    @property
    def label(self) -> Label | None:
        """Whose it is. A user that can do something, but nothing of what the claim says, is not the claim's."""
        if self.claim is None or self.claim.label is None or self.claim.label.kind != Kind.KEY:
            return None
        if self.user is None or self.user.bare or self.name in self.let_in:
            return self.claim.label
        return self.claim.label if self.claim.access_key in self.user.access_keys else None

    @property
    def whole(self) -> bool:
        if self.user is None or self.claim is None or self.label is None:
            return False
        as_made = _User((self.claim.access_key,), (), ())
        return self.user == as_made and self.name in self.let_in and not self.strangers

    def observation(self) -> Observation:
        if not self.present:
            return Absent()
        keys = ",".join(sorted(self.user.access_keys)) if self.user else ""
        label = self.label
        digest = label.digest if label is not None and self.whole else INCOMPLETE
        return Present(f"key:{self.name}:{keys}", digest, label.mark if label else None)


class ObjectKeys:
    """The kind key: it opens one bucket and nothing else."""

    kind = Kind.KEY

    def __init__(
        self, store: ObjectStore, owner: Owner = Owner.ENVIRONMENT, settle_seconds: float = objects.SETTLE_SECONDS
    ) -> None:
        self.settle_seconds = settle_seconds
        self._store = store
        self._claims = Claims(store)
        self._owner = owner

    def name(self, uuid: str) -> str:
        return names_of(uuid, self._owner).key

    def observe(self, name: str) -> Observation:
        try:
            return self._look(name).observation()
        except ProviderTrouble as trouble:
            return trouble.unknown

    def create(self, request: CreateRequest) -> Observation:
        """Make the user, with the key pair of the request, for the bucket `request.target`."""
        label = Label(self.kind, request.mark, request.digest)
        if request.key_pair is None:
            raise DriverRefused("a key needs its pair", where=f"{self.kind} {request.name}")
        with effects_on(self.kind, request.name) as effects:
            found = self._look(request.name)
            if found.present and found.label != label:
                raise effects.refuse(Trouble.FOREIGN)
            bucket = objects.look(self._store, request.target).observation(request.target)
            if not isinstance(bucket, Present) or bucket.mark is None:
                raise effects.refuse(Trouble.TARGET_MISSING)
            if self._read_policy(request.target) is None:
                raise effects.refuse(Trouble.FOREIGN)
            self._make(request, request.key_pair, label, found, effects)
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        """Remove the user with every key, also those it made for itself, its place in the policy, then the claim."""
        with effects_on(self.kind, name) as effects:
            found = self._look(name)
            if not found.present:
                return
            if found.claim is None or found.label is None or found.label.mark != mark:
                raise effects.refuse(Trouble.FOREIGN)
            if found.user is not None:
                for policy in found.user.attached:
                    effects.begin()
                    self._call_present("detach_user_policy", UserName=name, PolicyArn=policy)
                effects.begin()
                self._call_present("delete_user", UserName=name)
            with self._store.policies:
                self._follow_claims(found.claim.bucket, effects, to_leave=name)
                effects.begin()
                self._claims.remove(name, found.claim)
                # Another process may have read the claim before it was removed.
                self._follow_claims(found.claim.bucket, effects, to_leave=name)

    def list_owned(self) -> tuple[Owned, ...]:
        try:
            users = part(self._store.call(self._store.iam.list_users), "Users", list)
            names = {str(user["UserName"]) for user in users} | set(self._claims.names())
            labels = {name: self._look(name).label for name in sorted(filter(_is_key, names))}
        except ProviderTrouble as trouble:
            raise UnknownState(str(trouble.word), where=f"list of kind {self.kind}") from None
        return tuple(Owned(name, label.mark) for name, label in labels.items() if label is not None)

    def _make(self, request: CreateRequest, key: KeyPair, label: Label, found: _Found, effects: Effects) -> None:
        name, user = request.name, found.user
        if found.claim is None:
            effects.begin()
            self._claims.make(name, Claim(label, request.target, key.access_key))
        if user is None:
            effects.begin()
            self._call("create_user", UserName=name)
            self._keep_claimed(name, Claim(label, request.target, key.access_key), effects)
        with self._store.policies:
            if not self._follow_claims(request.target, effects, to_enter=name):
                raise effects.refuse(Trouble.FOREIGN)
        if user is None or not user.access_keys:
            effects.begin()
            self._store.call(_giving(self._store, key).create_access_key, UserName=name)

    def _keep_claimed(self, name: str, claim: Claim, effects: Effects) -> None:
        """A user that was made after its claim was taken away, because this came too late, is claimed again.

        So the listing of orphans knows it; it gets no access key.
        """
        with looking():
            found = self._claims.find(name)
        if found == claim:
            return
        if found is None:
            effects.begin()
            self._claims.make(name, claim)
        raise effects.refuse(Trouble.FOREIGN)

    def _follow_claims(self, bucket: str, effects: Effects, *, to_enter: str = "", to_leave: str = "") -> bool:
        """Have a bucket's policy say what the claims say.

        False if the policy is not the engine's, there is no bucket, or `to_enter` has lost its claim.
        """
        for _ in range(_LOOKS):
            with looking():
                document = self._policy(bucket)
                now = _let_in(bucket, document) if document else ()
                if document is None or now is None:
                    return False
                claimed = tuple(name for name in self._claims.on(bucket) if name != to_leave and _is_key(name))
                wanted = tuple(name for name in claimed if name in (*now, to_enter) or self._may_enter(name))
            if now == wanted:
                return not to_enter or to_enter in wanted
            effects.begin()
            try:
                if wanted:
                    text = policy_text(bucket, wanted)
                    self._store.call(self._store.s3.put_bucket_policy, Bucket=bucket, Policy=text)
                else:
                    self._store.call(self._store.s3.delete_bucket_policy, Bucket=bucket)
            except Missing:
                # Another process was faster, or took the bucket away: the next look says which.
                effects.undone()
        raise ProviderTrouble(Trouble.UNEXPECTED)

    def _may_enter(self, name: str) -> bool:
        """Whether who is claimed but not let in yet is the claim's, and not a user that somebody made meanwhile."""
        return _Found(name, self._claims.find(name), self._user(name)).label is not None

    def _policy(self, bucket: str) -> Mapping[str, Any] | None:
        """The policy of a bucket, empty if it has none; None if there is no such bucket."""
        try:
            answer = self._store.call(self._store.s3.get_bucket_policy, Bucket=bucket)
        except Missing as missing:
            if missing.code == "NoSuchBucketPolicy":
                return {}
            # The store says so as well where it could not read a bucket that is there.
            if bucket_tags(self._store, bucket) is None:
                return None
            raise ProviderTrouble(Trouble.UNREADABLE) from None
        try:
            return dict(json.loads(part(answer, "Policy", str)))
        except (ValueError, TypeError):
            raise ProviderTrouble(Trouble.UNREADABLE) from None

    def _look(self, name: str) -> _Found:
        claim, user = self._claims.find(name), self._user(name)
        if claim is None or not claim.bucket:
            return _Found(name, claim, user)
        let_in = self._read_policy(claim.bucket)
        if let_in is None or set(let_in) <= {name}:
            return _Found(name, claim, user, let_in or (), strangers=let_in is None)
        # Others come and go meanwhile: who comes is claimed before he is let in, who goes until he is put out.
        before = self._claims.on(claim.bucket)
        let_in = self._read_policy(claim.bucket)
        after = self._claims.on(claim.bucket)
        strangers = let_in is None or not set(let_in) <= {*before, *after}
        return _Found(name, claim, user, let_in or (), strangers)

    def _read_policy(self, bucket: str) -> tuple[str, ...] | None:
        """Whom the policy of a bucket lets in; None for a policy that is not the engine's."""
        document = self._policy(bucket)
        return _let_in(bucket, document) if document else ()

    def _user(self, name: str) -> _User | None:
        try:
            attached = part(self._call("list_attached_user_policies", UserName=name), "AttachedPolicies", list)
            inline = part(self._call("list_user_policies", UserName=name), "PolicyNames", list)
        except Missing:
            return None
        # Asked last: of a user that does not exist the store says here that it has no keys.
        keys = part(self._call("list_access_keys", UserName=name), "AccessKeyMetadata", list)
        return _User(
            tuple(sorted(str(key["AccessKeyId"]) for key in keys)),
            tuple(sorted(str(policy["PolicyArn"]) for policy in attached)),
            tuple(str(policy) for policy in inline),
        )

    def _call(self, function: str, **arguments: Any) -> Mapping[str, Any]:
        return self._store.call(getattr(self._store.iam, function), **arguments)

    def _call_present(self, function: str, **arguments: Any) -> None:
        try:
            self._call(function, **arguments)
        except Missing:
            return


def policy_text(bucket: str, users: tuple[str, ...]) -> str:
    """What keys may do: read and write the objects of one bucket, and list it. Not its tags, policy or versions."""
    place = f"arn:aws:s3:::{bucket}"
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": [_USER + user for user in users]},
        "Action": [f"s3:{action}" for action in _ACTIONS],
        "Resource": [place, f"{place}/*"],
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _let_in(bucket: str, document: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The users that a policy which this module wrote names; None for any other policy."""
    try:
        (statement,) = document["Statement"]
        principals = statement["Principal"]["AWS"]
    except (KeyError, ValueError, TypeError):
        return None
    listed = principals if isinstance(principals, list) else [principals]
    users = tuple(str(principal).removeprefix(_USER) for principal in listed)
    return users if _plain(document) == _plain(json.loads(policy_text(bucket, users))) else None


def _plain(document: Mapping[str, Any]) -> Any:
    """A policy without the difference between one value and a list of one."""

    def flat(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: flat(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return flat(value[0]) if len(value) == 1 else [flat(inner) for inner in value]
        return value

    return flat(document)


def _giving(store: ObjectStore, key: KeyPair) -> Any:
    """A client whose new access keys are the given one: the store takes it, the library has no place for it."""
    own = store.client("iam")

    def give(params: dict[str, Any], **_: Any) -> None:
        params["body"] |= {"AccessKeyId": key.access_key, "SecretAccessKey": key.secret_key.decode()}

    own.meta.events.register("before-call.iam.CreateAccessKey", give)
    return own


def _is_key(name: str) -> bool:
    uuid = uuid_of(name)
    return uuid is not None and any(names_of(uuid, owner).key == name for owner in Owner)
