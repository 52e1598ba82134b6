"""A sandbox by itself: what it shows, when it ends, and why a machine cannot have one."""

import contextlib
import os
import socket
import time
import traceback
from pathlib import Path

import pytest

from edt_sdk.schemas.errors import EdtError
from edt_sdk.training.namespaces import enter
from edt_server.system import bubblewrap, isolation
from edt_server.system.bubblewrap import Mounts, Sandbox
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until


@pytest.fixture
def lifeline():
    needs_bubblewrap()
    ends = list(os.pipe2(os.O_CLOEXEC))
    yield ends
    for end in ends:
        os.close(end)


def run_in(sandbox, act):
    """What `act` returns in a process of the sandbox, as text."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            enter(sandbox.namespaces)
            inner = os.fork()
            if inner:
                os.waitpid(inner, 0)
            else:
                os.write(write, str(act()).encode())
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        text = answer.read().decode()
    os.wait()
    return text


def test_what_it_shows(lifeline, tmp_path):
    for name in ("seen", "own", "private", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "key").write_text("secret")
    (tmp_path / "own" / "job").write_text("mine")
    mounts = Mounts(
        readable=(str(tmp_path / "seen"), "/none/such"),
        empty=(str(tmp_path / "private"),),
        writable=(str(tmp_path / "own"),),
        hidden=(str(tmp_path / "own" / "key"),),
        temporary=str(tmp_path / "temporary"),
    )
    sandbox = Sandbox(mounts, lifeline)

    def look():
        def fails(act):
            try:
                act()
            except OSError:
                return True
            return False

        return (
            sorted(os.listdir(tmp_path)),
            (tmp_path / "own" / "job").write_text("changed"),
            fails((tmp_path / "own" / "key").read_bytes),
            fails(lambda: (tmp_path / "own" / "key").rename(tmp_path / "own" / "taken")),
            fails(lambda: (tmp_path / "seen" / "new").touch()),
            fails(lambda: (tmp_path / "private" / "new").touch()),
            fails(lambda: open("/etc/shadow").close()),
            os.open("/tmp/new", os.O_CREAT) > 0,
            sorted(name for name in os.listdir("/proc") if name.isdecimal()),
            os.getppid(),
        )

    found = run_in(sandbox, look)
    sandbox.close()
    expected = (["own", "private", "seen"], 7, True, True, True, True, True, True)
    assert found.startswith(str(expected)[:-1]), found
    assert found.endswith(", ['1', '2'], 0)"), found  # the first process and itself, and no parent
    assert (tmp_path / "own" / "job").read_text() == "changed"
    assert (tmp_path / "temporary" / "new").exists()


def test_it_ends_with_its_lifeline_and_everything_in_it_too(lifeline):
    sandbox = Sandbox(Mounts(), lifeline)
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(lifeline[1])
        enter(sandbox.namespaces)
        if pid := os.fork():
            os.write(write, str(pid).encode())
            os._exit(0)
        time.sleep(600)
    os.wait()
    os.close(write)
    adopted = int(os.read(read, 20))
    assert sandbox.alive
    os.close(lifeline[1])
    lifeline[1] = os.open(os.devnull, os.O_RDONLY)

    def ended():
        with contextlib.suppress(ChildProcessError):  # this process may be the one that adopts it
            os.waitpid(adopted, os.WNOHANG)
        return not sandbox.alive and not Path(f"/proc/{adopted}").exists()

    until(ended, "the end of the sandbox")
    # Its end closes the pipe: nothing that was started in it is left.
    assert os.read(read, 1) == b""
    os.close(read)
    sandbox.close()


def test_without_a_network_it_has_only_itself(lifeline):
    sandbox = Sandbox(Mounts(), lifeline, network=False)
    found = run_in(sandbox, lambda: [name for _, name in socket.if_nameindex()])
    sandbox.close()
    assert found == "['lo']"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "there is no bwrap on this machine"),
        ("echo 'No permissions to create a namespace' >&2; exit 1", "No perm"),
    ],
)
def test_a_machine_that_cannot_have_one_says_why(script, said, tmp_path, monkeypatch):
    if script is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EdtError, match=said) as refused:
        bubblewrap.check()
    assert "apt-get install bubblewrap" in refused.value.hint


def test_several_people_have_to_choose():
    with pytest.raises(EdtError, match="nothing says how their jobs are kept apart") as refused:
        isolation.isolation("", several=True, hosts=False)
    assert "'sandbox'" in refused.value.hint
    assert isolation.isolation("", several=False, hosts=False).kind == "same"
    assert isolation.isolation("same", several=True, hosts=False).kind == "same"


def test_on_hosts_there_are_no_accounts_and_the_network_is_needed(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(EdtError, match="Jobs on hosts cannot run as the accounts") as refused:
        isolation.isolation("account", several=True, hosts=True)
    assert "'sandbox', which works on hosts too" in refused.value.hint
    with pytest.raises(EdtError, match="need the network"):
        isolation.isolation("sandbox", several=True, hosts=True, network=False)
