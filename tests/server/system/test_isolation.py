"""Which account a user's jobs run as, and why a machine or a user cannot have one."""

from __future__ import annotations

import os
import pwd

import pytest

from edt_sdk.schemas.errors import ServerUnreachable, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_server.system.interpreters import Interpreters
from edt_server.system.isolation import FIRST_UID, account_of, isolation


def person(name, uid):
    return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", "/bin/sh"))


@pytest.fixture(autouse=True)
def people(monkeypatch):
    system = {"root": person("root", 0), "daemon": person("daemon", 1)}
    known = system | {"ann": person("ann", FIRST_UID), "me": person("me", os.geteuid() or 4711)}
    monkeypatch.setattr("os.geteuid", lambda: known["me"].pw_uid)
    monkeypatch.setattr("pwd.getpwnam", lambda name: known[name])
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {each.pw_uid: each for each in known.values()}[uid])
    monkeypatch.setattr("os.getgrouplist", lambda name, gid: [gid, 7])


def test_an_owner_has_the_account_with_the_same_name():
    account = account_of("ann", None)
    assert (account.name, account.uid, account.gid, account.groups) == ("ann", FIRST_UID, FIRST_UID, (FIRST_UID, 7))
    assert (account.home, account.shell) == ("/home/ann", "/bin/sh")


def test_a_function_names_another_one_and_by_its_uid_one_of_the_system():
    assert account_of("ann@example.org", lambda owner: owner.partition("@")[0]).name == "ann"
    assert account_of("ann", {"ann": 1}.get).name == "daemon"


@pytest.mark.parametrize(
    ("owner", "named", "why"),
    [
        ("eve", None, "eve has no account on this server's machine"),
        ("ann", lambda _: None, "ann has no account"),
        ("ann", lambda _: 99, "ann has no account"),
        ("ann", lambda _: True, "ann has no account"),
        ("daemon", None, r"No job runs as the account daemon \(1\)"),
        ("ann", lambda _: "daemon", "No job runs as the account daemon"),
        ("root", None, "No job runs as the account root"),
        ("ann", lambda _: 0, "No job runs as the account root"),
        ("me", None, "No job runs as the account me"),
    ],
)
def test_others_are_refused(owner, named, why):
    with pytest.raises(Unprocessable, match=why):
        account_of(owner, named)


def test_a_server_that_is_not_root_says_so():
    with pytest.raises(ServerUnreachable, match="Only root can run jobs as the accounts of their owners"):
        isolation("account", several=True, hosts=False)


async def test_root_runs_no_program_of_others(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ntouch $0.ran\n")
    python.chmod(0o755)
    if os.getuid() == 0:
        os.chown(python, 1, 1)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 4711)
    asked = Interpreters(str(python), {}, ours=True)
    with pytest.raises(Unprocessable, match=f"{python} belongs to the account"):
        await asked.choose(JobSpec(name="n", main="train.py", max_workers=1))
    assert await asked.those([]) == []
    assert not (tmp_path / "python.ran").exists()
