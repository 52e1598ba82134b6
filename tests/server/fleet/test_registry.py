"""What a server keeps of hosts and tokens, and what a token's text says."""

from __future__ import annotations

import base64
import stat

import msgspec
import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.hosts import check_host_name
from edt_server.fleet.registry import HostRecord, Registry
from edt_server.messaging import read_token


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "fleet")


def make(registry, *, seconds=60.0, uses=1, provider=""):
    text = registry.make_token(("tcp://h:1", "tcp://i:1"), "server", seconds=seconds, uses=uses, provider=provider)
    return text, read_token(text)


def test_the_text_of_a_token_has_all_that_a_machine_needs(registry):
    text, token = make(registry, uses=3, provider="ray")
    assert (token.servers, token.server_key) == (("tcp://h:1", "tcp://i:1"), "server")
    assert read_token(f"  {text}\n") == token
    ((_, kept),) = registry.tokens()
    assert (kept.public_key, kept.uses, kept.provider) == (token.public_key, 3, "ray")
    assert token.secret_key != token.public_key


def test_what_the_server_keeps_lets_nobody_in(registry, tmp_path):
    text, token = make(registry)
    registry.keep(HostRecord(name="a", public_key="p"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert token.secret_key not in path.read_text()
        assert text not in path.read_text()


def test_every_token_has_a_key_of_its_own(registry):
    made = {make(registry)[1].secret_key for _ in range(20)}
    assert len(made) == 20
    assert len(list(registry.tokens())) == 20


def test_tokens_that_are_too_old_or_used_up_are_removed(registry, clocks):
    make(registry, seconds=10)
    make(registry, seconds=60)
    clocks.pass_time(11)
    ((name, left),) = registry.tokens()
    assert left.uses == 1
    registry.keep_token(name, msgspec.structs.replace(left, uses=0))
    assert list(registry.tokens()) == []
    clocks.set_by(-1000)
    assert list(registry.tokens()) == [], "they are gone for good"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "edt1.",
        "edt2.e30",
        "edt1.e30",
        "edt1.%%%",
        "edt1.ä",
        "edt1.a",
        "edt1." + base64.urlsafe_b64encode(b'{"servers": "x"}').decode(),
        "edt1." + base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        "eyJzZXJ2ZXJzIjpbXX0",
    ],
)
def test_any_other_text_is_no_token(text):
    with pytest.raises(Unprocessable) as refused:
        read_token(text)
    assert "edt host token" in refused.value.hint
    assert refused.value.ids == {"field": "token"}


def test_a_token_that_was_cut_off_is_none(registry):
    text, _ = make(registry)
    for length in range(len(text)):
        with pytest.raises(Unprocessable):
            read_token(text[:length])


def test_hosts_are_kept_until_they_are_forgotten(registry, tmp_path):
    assert list(registry.hosts()) == []
    a = HostRecord(name="a", public_key="p", up=True, gpus=(0, 2), offers=2, cores=8)
    registry.keep(HostRecord(name="b", public_key="q"))
    registry.keep(msgspec.structs.replace(a, up=False))
    registry.keep(a)
    (tmp_path / "fleet" / "hosts" / "c.json").write_text("{")
    assert [each.name for each in Registry(tmp_path / "fleet").hosts()] == ["a", "b"]
    assert next(Registry(tmp_path / "fleet").hosts()) == a
    registry.forget("a")
    registry.forget("a")
    assert [each.name for each in registry.hosts()] == ["b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a:b", "-a", "a b", "ä", "a\n", "a" * 64, "\0"])
def test_what_cannot_be_the_name_of_a_host(name):
    with pytest.raises(Unprocessable) as refused:
        check_host_name(name)
    assert refused.value.ids == {"field": "name"}


@pytest.mark.parametrize("name", ["a", "7", "node-1.cluster_2", "a" * 63])
def test_names_of_hosts(name):
    check_host_name(name)
