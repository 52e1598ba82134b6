"""Know the deployments: which keys may call them, and which target answers a caller."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.serving.edge_file import EdgeDeployment, EdgeFile, EdgeState, Key, Target
from edt_server.serving.dispatch import Refusal
from edt_server.serving.file import FileWatch
from edt_server.serving.target import LiveTarget

log = logging.getLogger(__name__)
_TICK = 0.1
_LOOK_EVERY = 2  # ticks


@dataclass(frozen=True, slots=True)
class LiveDeployment:
    """A deployment with its targets."""

    settings: EdgeDeployment
    targets: tuple[LiveTarget, ...]

    def target(self, version: str | None, caller: str) -> LiveTarget:
        """Return the target that answers a caller, always the same one while the shares stay.

        Args:
            version: the number that the address names, None when it names none.
            caller: what distinguishes it from other callers.
        """
        found = self.targets
        if not found:
            raise Refusal(409, f"{self.settings.name} is stopped.")
        if version is not None:
            found = tuple(each for each in found if each.number == version)
            if not found:
                deployed = ", ".join(sorted({each.number for each in self.targets}))
                raise Refusal(
                    404, f"Version {version} of {self.settings.name} is not deployed. These versions are: {deployed}."
                )
        if len(found) == 1:
            return found[0]
        name = f"{self.settings.name}\0{caller}".encode()
        point = int.from_bytes(hashlib.sha256(name).digest()[:8], "big") / 2**64
        point *= sum(each.target.share for each in found)
        for each in found:
            point -= each.target.share
            if point < 0:
                return each
        return found[-1]


class Edge:
    """What the edge knows and serves. `path` is its file."""

    def __init__(self, path: Path) -> None:
        self.deployments: dict[str, LiveDeployment] = {}
        self.began = 0.0
        self.informed = False
        self._number = 0  # of the newest file
        self._inner_sha256 = ""
        self._retired: list[LiveTarget] = []
        self._file = FileWatch(path)

    async def run(self) -> None:
        """Follow the file and the clock until cancelled."""
        self.began, ticks = time.time(), 0
        while True:
            await asyncio.sleep(_TICK)
            ticks += 1
            if ticks % _LOOK_EVERY == 0:
                await self.look()
            now = time.monotonic()
            for target in (*self._targets().values(), *self._retired):
                target.tick(now)
            self._retired = [target for target in self._retired if not target.close()]

    async def look(self) -> None:
        """Take over a file that has changed, and listen where replicas connect."""
        if (new := self._file.changed()) is not None:
            self._apply(new)
        for target in self._targets().values():
            await target.listen()

    def close(self) -> None:
        """Remove the sockets."""
        targets, self.deployments = self._targets(), {}  # a request that is still there must not look for a target
        for target in targets.values():
            target.retire()

    def find(self, name: str) -> LiveDeployment:
        """Return the deployment of that name. Refusal for another one."""
        if (found := self.deployments.get(name)) is None:
            raise Refusal(404, f"There is no deployment {name!r}.")
        return found

    def caller(self, deployment: LiveDeployment, token: bytes | None, inner: str | None, address: str) -> str:
        """Return what distinguishes the caller of a deployment from others. Refusal when it may not call.

        `token` is the key that came with the request and `inner` that of the server, None for none. `address` is where
        the request came from.
        """
        if inner is not None:
            self.check_inner(inner)
            return address
        digest = None if token is None else hashlib.sha256(token).hexdigest()
        if digest is not None and (key := _key(deployment.settings.keys, digest)) is not None:
            if key.expires is not None and key.expires <= time.time():
                raise _unauthorized("This key has expired.")
            return key.id
        if deployment.settings.public:
            return address
        if digest is None:
            raise _unauthorized("A key is missing. Send it as Authorization: Bearer KEY.")
        if any(_key(each.settings.keys, digest) for each in self.deployments.values()):
            raise Refusal(403, f"This key is not one of {deployment.settings.name}.")
        raise _unauthorized("This key is unknown, or was revoked.")

    def check_inner(self, inner: str | None) -> None:
        """Refuse every key but that of the server."""
        digest = hashlib.sha256((inner or "").encode("latin-1")).hexdigest()
        if not hmac.compare_digest(self._inner_sha256, digest):
            raise _unauthorized("Only the server may ask this.")

    def state(self) -> EdgeState:
        """Return the counters of all targets."""
        targets = {each.target.job: each.counters() for each in (*self._retired, *self._targets().values())}
        return EdgeState(began=self.began, targets=targets, number=self._number)

    def _targets(self) -> Mapping[tuple[object, ...], LiveTarget]:
        return {_identity(each.target): each for some in self.deployments.values() for each in some.targets}

    def _apply(self, file: EdgeFile) -> None:
        live = dict(self._targets())
        deployments: dict[str, LiveDeployment] = {}
        for settings in file.deployments:
            targets = []
            for target in settings.targets:
                found = live.pop(_identity(target), None) or LiveTarget(settings, target)
                found.configure(settings, target)
                targets.append(found)
            deployments[settings.name] = LiveDeployment(settings, tuple(targets))
        self.deployments, self._inner_sha256, self.informed = deployments, file.inner_sha256, True
        self._number = file.number
        for left in live.values():
            left.retire()
            self._retired.append(left)


def _identity(target: Target) -> tuple[object, ...]:
    return target.job, target.socket, target.owner


def _key(keys: Iterable[Key], digest: str) -> Key | None:
    # All of them in constant time: how long it takes must not depend on how much of a digest is right.
    return next((key for key in keys if hmac.compare_digest(key.sha256, digest)), None)


def _unauthorized(error: str) -> Refusal:
    return Refusal(401, error, {"WWW-Authenticate": "Bearer"})
