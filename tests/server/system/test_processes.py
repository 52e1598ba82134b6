import os
import signal
import subprocess
import sys

import msgspec
import pytest

from edt_server.system.processes import identify, is_alive, open_pidfd, parent_of, send_signal, stat_fields, visible


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_itself_and_alive(sleeper):
    identity = identify(sleeper.pid)
    assert identity == identify(sleeper.pid)
    assert identity != identify(os.getpid())
    assert visible(identity)
    assert is_alive(identity)
    assert parent_of(sleeper.pid) == os.getpid()


def test_one_that_ended_is_dead_before_it_is_reaped_and_after(sleeper):
    identity = identify(sleeper.pid)
    assert send_signal(identity, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity)
    assert not send_signal(identity, signal.SIGTERM)
    sleeper.wait()
    assert not is_alive(identity)
    with open_pidfd(identity) as descriptor:
        assert descriptor is None


def test_another_process_with_the_same_number_is_not_touched(sleeper):
    now = identify(sleeper.pid)
    earlier = msgspec.structs.replace(now, start_ticks=now.start_ticks - 1)
    assert not is_alive(earlier)
    assert not send_signal(earlier, signal.SIGKILL)
    assert is_alive(now)


def test_what_cannot_be_seen_counts_as_alive_and_gets_no_signal():
    here = identify(os.getpid())
    elsewhere = msgspec.structs.replace(here, host="another-host", boot_id="b")
    container = msgspec.structs.replace(here, pid_namespace="pid:[1]")
    before_reboot = msgspec.structs.replace(here, boot_id="b")
    for hidden in (elsewhere, container):
        assert not visible(hidden)
        assert is_alive(hidden)
        assert not send_signal(hidden, signal.SIGTERM)
    assert not is_alive(before_reboot)


def test_names_with_blanks_and_brackets(tmp_path):
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])
    try:
        # The name changes with the exec, which Popen has waited for.
        assert parent_of(process.pid) == os.getpid()
        assert int(stat_fields(process.pid)[19]) == identify(process.pid).start_ticks
        assert is_alive(identify(process.pid))
    finally:
        process.kill()
        process.wait()


def test_no_such_process():
    with pytest.raises(ProcessLookupError):
        identify(2**22 + 1)
