"""How much memory is left: the system's files as they are, and as they would be elsewhere."""

import os

import pytest

from edt_server.supervisor.processes.memory_left import Memory, memory_now, size

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"
ALL = Memory(1000 << 10, 600 << 10)


@pytest.fixture
def system(tmp_path):
    """A system that tells `files` of itself; paths below /proc and /sys/fs/cgroup."""

    def tell(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return memory_now(tmp_path / "proc", tmp_path / "groups")

    return tell


def test_here():
    memory = memory_now()
    assert memory is not None
    assert 0 < memory.free < memory.total
    assert 1 << 20 < size([os.getpid(), 0]) < memory.total
    assert size([]) == 0


def test_the_machines_where_nothing_bounds_it(system):
    assert system(proc__meminfo=MEMINFO) == ALL
    assert system(proc__self__cgroup="0::/a\n", groups__a__memory_dot_max="max\n") == ALL


def test_nothing_is_known_where_the_system_does_not_tell(system):
    assert system() is None
    assert system(proc__meminfo="MemTotal: 1000 kB\n") is None


def test_the_tightest_group_around_it_counts(system):
    found = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/a/b\n",
        groups__a__memory_dot_max=str(500 << 10),
        groups__a__memory_dot_current=str(400 << 10),
        groups__a__memory_dot_stat=f"anon 7\ninactive_file {100 << 10}\n",
        groups__a__b__memory_dot_max="max",
    )
    assert found == Memory(500 << 10, 200 << 10)


def test_version_1_in_a_container_that_sees_its_own_group_as_the_root(system):
    found = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup="4:cpu,memory:/docker/abc\n1:name=systemd:/\n",
        groups__memory__memory_dot_limit_in_bytes=str(300 << 10),
        groups__memory__memory_dot_usage_in_bytes=str(280 << 10),
        groups__memory__memory_dot_stat=f"total_inactive_file {30 << 10}\n",
    )
    assert found == Memory(300 << 10, 50 << 10)


def test_a_limit_above_what_there_is_is_none(system):
    found = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup="4:memory:/\n",
        groups__memory__memory_dot_limit_in_bytes=str(1 << 62),
        groups__memory__memory_dot_usage_in_bytes="5",
        groups__memory__memory_dot_stat="",
    )
    assert found == ALL


def test_a_fifth_stays_free_for_others_and_below_a_tenth_they_go():
    assert Memory(1000, 500).fits(300)
    assert not Memory(1000, 500).fits(301)
    assert not Memory(1000, 100).scarce
    assert Memory(1000, 99).scarce
