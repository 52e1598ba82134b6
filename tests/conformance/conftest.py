"""Live servers, over http and over https with a self-signed certificate, for WMLA's own clients.

`WmlaServer` is what a WMLA user has to change in a program: a host, a user and a password. Nothing else of ours is used
by the tests of this folder to talk to the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from edt_sdk.testing import LocalServer
from tests.packages import packed
from tests.waiting import until

TLS = Path(__file__).parent / "tls"
MODELS = Path(__file__).parent / "models"
LIMIT = 60.0


@dataclass(frozen=True)
class WmlaServer:
    """One server as WMLA's clients see it."""

    local: LocalServer
    user: str = "wmla_user"

    @property
    def url(self) -> str:
        return self.local.url.rstrip("/")

    @property
    def password(self) -> str:
        return self.local.token

    @property
    def basic(self) -> tuple[str, str]:
        return self.user, self.password

    @property
    def conductor(self) -> str:
        return f"{self.url}/platform/rest/conductor/v1"

    @property
    def dli(self) -> str:
        return f"{self.url}/platform/rest/deeplearning/v1"

    def logon(self) -> str:
        """The access token of a logon as 2.x does it."""
        answer = requests.get(f"{self.url}/auth/v1/logon", auth=self.basic, verify=False)
        answer.raise_for_status()
        return str(answer.json()["accessToken"])

    def wait(self, exec_id: str, *states: str, limit: float = LIMIT) -> dict[str, object]:
        """The exec as soon as it is in one of the states."""

        def look() -> dict[str, object] | None:
            found = requests.get(f"{self.dli}/execs/{exec_id}", auth=self.basic, verify=False).json()
            return dict(found) if found["state"] in (*states, "FINISHED", "KILLED", "ERROR") else None

        found: dict[str, object] = until(look, f"{exec_id} in {' or '.join(states)}", limit)
        if found["state"] in states:
            return found
        log = requests.get(
            f"{self.dli}/execs/{exec_id}/log?logType=outerrlog",
            auth=self.basic,
            headers={"Accept": "text/plain"},
            verify=False,
        )
        pytest.fail(f"{exec_id} is {found['state']}, not {states}: {found}\n{log.text}")


def modeldir(name: str, files: Mapping[str, bytes] | None = None, *, top: str | None = None) -> bytes:
    """A folder of `models/` (or other files) as the clients pack it: a gzipped tar of one directory."""
    if files is None:
        files = {path.name: path.read_bytes() for path in sorted((MODELS / name).iterdir()) if path.is_file()}
    folder = name if top is None else top
    return packed({f"{folder}/{each}".lstrip("/"): content for each, content in files.items()})


@pytest.fixture(scope="session")
def scheme_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WmlaServer]]:
    """The servers there are by now, by scheme; started when a test first wants one."""
    started: dict[str, WmlaServer] = {}
    yield started
    with _trusting():
        for server in started.values():
            server.local.stop()


@pytest.fixture(params=["http", pytest.param("https", marks=pytest.mark.long)])
def server(
    request: pytest.FixtureRequest,
    scheme_servers: dict[str, WmlaServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> WmlaServer:
    """The server that speaks `request.param`."""
    return _server(request.param, scheme_servers, tmp_path_factory)


@pytest.fixture
def http(scheme_servers: dict[str, WmlaServer], tmp_path_factory: pytest.TempPathFactory) -> WmlaServer:
    """The one that speaks http, for what has nothing to do with that."""
    return _server("http", scheme_servers, tmp_path_factory)


def _server(scheme: str, started: dict[str, WmlaServer], tmp: pytest.TempPathFactory) -> WmlaServer:
    if scheme not in started:
        root = tmp.mktemp(scheme)
        data = root / "data-fs"
        data.mkdir()
        traits = {
            "EdtApp.threads_per_slot": 1,
            "EdtApp.data_fs": data,
            "EdtApp.warm_workers": 1,
        }
        if scheme == "https":
            traits |= {"ServerApp.certfile": TLS / "cert.pem", "ServerApp.keyfile": TLS / "key.pem"}
        with _trusting():
            started[scheme] = WmlaServer(LocalServer(root, slots=2, traits=traits).start())
            started[scheme].local.client().create_instance_group("wmla-sig")
    return started[scheme]


@pytest.fixture(autouse=True)
def trust() -> Iterator[None]:
    """What asks without `verify=False` trusts the certificate, as a user does who has installed it."""
    with _trusting():
        yield


@contextmanager
def _trusting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REQUESTS_CA_BUNDLE", str(TLS / "cert.pem"))
        yield
