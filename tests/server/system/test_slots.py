"""Finding slots: GPUs as a real `nvidia-smi` program on the path tells them, cores as the system's files tell them."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.plan import Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_server.system import slots
from edt_server.system.slots import (
    Host,
    _devices,
    find_gpus,
    find_host,
    plan_slots,
    threads_per_slot,
    unlike,
    usable_cores,
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No `nvidia-smi` but the test's own, and nothing said before."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    slots._say_once.cache_clear()


@pytest.fixture
def nvidia_smi(tmp_path):
    def install(output: str, code: int = 0) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\n"
            '[ "$*" = "--query-gpu=index,uuid --format=csv,noheader" ] || { echo "bad arguments: $*"; exit 2; }\n'
            f"cat <<'END'\n{output}\nEND\nexit {code}\n"
        )
        program.chmod(0o755)

    return install


def find_slots(count=0, host=None):
    """Return this host's slots under the default plan."""
    found = find_host(count)
    return plan_slots(Plan(), [replace(found, name=host or found.name)])


GPUS = "0, GPU-aaaa1111-0\n1, GPU-bbbb2222-0\n2, GPU-bbbb3333-0"


class TestCpu:
    def test_as_many_as_asked_for(self):
        assert find_slots(3, "h") == tuple(Slot(id=n, host="h", device="cpu") for n in range(3))

    def test_more_than_cores_is_the_administrators_business(self):
        assert len(find_slots(usable_cores() + 7)) == usable_cores() + 7

    def test_one_per_usable_core_of_this_host_by_default(self):
        found = find_slots()
        assert len(found) == usable_cores()
        assert {slot.host for slot in found} == {socket.gethostname()}
        assert {slot.device for slot in found} == {"cpu"}

    def test_a_negative_count_is_refused(self):
        with pytest.raises(Unprocessable, match="-1"):
            find_slots(-1)


class TestGpus:
    def test_one_slot_per_gpu(self, nvidia_smi):
        nvidia_smi(GPUS)
        assert [slot.device for slot in find_slots(0, "h")] == ["cuda:0", "cuda:1", "cuda:2"]
        assert [slot.id for slot in find_slots(0, "h")] == [0, 1, 2]

    def test_the_first_of_them_where_fewer_are_wanted(self, nvidia_smi):
        nvidia_smi(GPUS)
        assert [slot.device for slot in find_slots(2)] == ["cuda:0", "cuda:1"]

    def test_never_two_slots_on_one_gpu(self, nvidia_smi, caplog):
        nvidia_smi(GPUS)
        assert len(find_slots(8)) == 3
        assert "8 slots were asked for, but there are 3 GPUs" in caplog.text

    @pytest.mark.parametrize(
        ("visible", "expected"),
        [
            ("", ()),
            ("-1", ()),
            ("2,0", (2, 0)),
            ("1", (1,)),
            ("0,7,1", (0,)),  # CUDA stops at the first that is none
            ("GPU-bbbb3333", (2,)),
            ("GPU-bbbb", ()),  # two begin like that
            ("0,0", (0,)),
        ],
    )
    def test_what_the_server_may_not_see_it_does_not_offer(self, nvidia_smi, monkeypatch, visible, expected):
        nvidia_smi(GPUS)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert find_gpus() == expected

    def test_no_gpus_visible_means_cpu_slots(self, nvidia_smi, monkeypatch):
        nvidia_smi(GPUS)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert find_slots(2, "h") == (Slot(id=0, host="h"), Slot(id=1, host="h"))

    @pytest.mark.parametrize(
        ("output", "code", "words"),
        [
            ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "ended with 9"),
            ("No devices were found", 0, "answered 'No devices were found'"),
            ("[Unknown Error], x", 0, "answered"),
        ],
    )
    def test_a_tool_that_fails_means_no_gpus_and_is_told_once(self, nvidia_smi, caplog, output, code, words):
        nvidia_smi(output, code)
        with caplog.at_level(logging.INFO):
            assert find_gpus() == ()
            assert find_gpus() == ()
        assert [words in record.getMessage() for record in caplog.records] == [True]

    def test_a_missing_tool_means_no_gpus(self, monkeypatch, tmp_path, caplog):
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        with caplog.at_level(logging.INFO):
            assert find_gpus() == ()
        assert "there is no nvidia-smi" in caplog.text


class TestThreads:
    @pytest.mark.parametrize(("number", "expected"), [(1, 8), (2, 4), (3, 2), (8, 1), (100, 1), (0, 8)])
    def test_cores_divided_by_slots(self, monkeypatch, number, expected):
        monkeypatch.setattr(slots, "usable_cores", lambda: 8)
        assert threads_per_slot(number) == expected


class TestCores:
    """`proc` and `cgroups` are folders laid out as the kernel lays them out."""

    @pytest.fixture(autouse=True)
    def _eight(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))

    @staticmethod
    def tree(root, files: dict[str, str]):
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root / "proc", root / "cg"

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({}, 8),
            ({"proc/self/cgroup": "0::/\n"}, 8),
            ({"proc/self/cgroup": "0::/\n", "cg/cpu.max": "max 100000\n"}, 8),
            ({"proc/self/cgroup": "0::/\n", "cg/cpu.max": "250000 100000\n"}, 2),
            ({"proc/self/cgroup": "0::/\n", "cg/cpu.max": "50000 100000\n"}, 1),
            ({"proc/self/cgroup": "0::/\n", "cg/cpu.max": "9900000 100000\n"}, 8),
            (
                {
                    "proc/self/cgroup": "0::/user/job\n",
                    "cg/user/job/cpu.max": "600000 100000\n",
                    "cg/user/cpu.max": "300000 100000\n",  # the tightest one above counts
                    "cg/cpu.max": "max 100000\n",
                },
                3,
            ),
            ({"proc/self/cgroup": "0::/as/the/host/sees/it\n", "cg/cpu.max": "400000 100000\n"}, 4),
            (
                {
                    "proc/self/cgroup": "3:cpuset:/\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
                    "cg/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "500000\n",
                    "cg/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
                    "cg/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                    "cg/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                },
                5,
            ),
        ],
    )
    def test_the_quota_bounds_the_affinity(self, tmp_path, files, expected):
        assert usable_cores(*self.tree(tmp_path, files)) == expected


def resources(*groups):
    return Plan(resource_groups=tuple(ResourceGroup(**group) for group in groups))


def by_host(slots):
    counts = {}
    for slot in slots:
        counts.setdefault(slot.host, []).append(slot.device)
    return counts


def by_definition(plan, hosts, before):
    """Return the slots as `plan_slots` does, in the fewest words: a device takes its lowest old id, else a new one."""
    left = sorted(before)
    fresh = (number for number in count() if number not in {slot.id for slot in before})
    found = []
    for host in hosts:
        rest = [group for group in plan.resource_groups if not group.hosts]
        group = next((group for group in plan.resource_groups if host.name in group.hosts), rest[0] if rest else None)
        for device in _devices(host, group):
            slot = next((slot for slot in left if (slot.host, slot.device) == (host.name, device)), None)
            if slot is None:
                slot = Slot(id=next(fresh), host=host.name, device=device)
            else:
                left.remove(slot)
            found.append(slot)
    return tuple(sorted(found))


class TestUnderAPlan:
    cpu, other, gpu = Host("a", cores=8), Host("b", cores=3), Host("g", (0, 2), cores=16)

    def test_the_default_plan_takes_what_each_host_offers(self):
        slots = plan_slots(Plan(), [self.cpu, self.gpu, Host("c", cores=4, offers=2), Host("h", (0, 1), offers=1)])
        assert by_host(slots) == {
            "a": ["cpu"] * 8, "g": ["cuda:0", "cuda:2"], "c": ["cpu"] * 2, "h": ["cuda:0"],
        }  # fmt: skip
        assert [slot.id for slot in slots] == list(range(13))

    @pytest.mark.parametrize(
        ("formula", "on_cpu", "on_gpu"),
        [
            ("ncpus/2", ["cpu"] * 4, ["cpu"] * 8),
            ("ngpus", [], ["cuda:0", "cuda:2"]),
            ("ngpus*2", [], ["cuda:0", "cuda:2", "cuda:0", "cuda:2"]),
            ("3", ["cpu"] * 3, ["cuda:0", "cuda:2", "cuda:0"]),
            ("0", [], []),
        ],
    )
    def test_a_formula_counts_on_each_host(self, formula, on_cpu, on_gpu):
        slots = plan_slots(resources({"name": "default", "slots": formula}), [self.cpu, self.gpu])
        assert by_host(slots) == {name: found for name, found in (("a", on_cpu), ("g", on_gpu)) if found}

    def test_hosts_are_selected_by_name(self):
        plan = resources({"name": "big", "hosts": ("g",), "slots": "1"}, {"name": "rest", "slots": "ncpus"})
        assert by_host(plan_slots(plan, [self.cpu, self.other, self.gpu])) == {
            "a": ["cpu"] * 8, "b": ["cpu"] * 3, "g": ["cuda:0"],
        }  # fmt: skip
        only = resources({"name": "big", "hosts": ("g", "not-here")})
        assert by_host(plan_slots(only, [self.cpu, self.gpu])) == {"g": ["cuda:0", "cuda:2"]}

    def test_what_stays_keeps_its_id(self):
        hosts = [self.cpu, self.other]
        first = plan_slots(Plan(), hosts)
        fewer = plan_slots(resources({"name": "default", "slots": "2"}), hosts, first)
        assert [(slot.id, slot.host) for slot in fewer] == [(0, "a"), (1, "a"), (8, "b"), (9, "b")]
        more = plan_slots(Plan(), hosts, fewer)
        assert set(fewer) < set(more)
        assert by_host(more) == by_host(first)
        assert len({slot.id for slot in more}) == 11
        assert plan_slots(Plan(), hosts[::-1], first) == first

    @given(st.data())
    def test_what_the_fast_way_gives_is_what_the_definition_says(self, data):
        names = st.sampled_from("abcdef")
        host = st.builds(
            Host,
            names,
            st.sampled_from(((), (0,), (0, 2), (3, 1, 0))),
            cores=st.integers(1, 5),
            offers=st.integers(0, 3),
        )
        hosts = st.lists(host, max_size=6, unique_by=lambda each: each.name)
        formula = st.sampled_from(("", "2", "0", "ncpus", "ngpus*2", "ncpus/2"))
        named = data.draw(st.lists(names, max_size=4, unique=True))
        groups = [ResourceGroup(name="n", hosts=tuple(named), slots=data.draw(formula))] if named else []
        groups += [ResourceGroup(name="rest", slots=data.draw(formula))] if data.draw(st.booleans()) else []
        plan = Plan(resource_groups=tuple(groups))
        before = by_definition(plan, data.draw(hosts), ())
        before = tuple(data.draw(st.permutations([slot for slot in before if data.draw(st.booleans())])))
        there = data.draw(hosts)
        assert plan_slots(plan, there, before) == by_definition(plan, there, before)

    def test_a_new_slot_never_takes_the_id_of_one_that_goes(self):
        """Its worker may still be in there."""
        first = plan_slots(Plan(), [self.cpu])
        second = plan_slots(Plan(), [self.other], first)
        assert {slot.id for slot in first}.isdisjoint(slot.id for slot in second)

    def test_hosts_that_round_otherwise_than_the_first_offer_none_unless_their_group_is_portable(self):
        def host(name, kind, portable_kind):
            return Host(name, offers=1, kind=kind, portable_kind=portable_kind)

        hosts = [host("a", "avx512", "p"), host("b", "avx2", "p"), host("c", "neon", "q"), host("old", "avx512", "")]
        assert by_host(plan_slots(Plan(), hosts)).keys() == {"a", "old"}
        why = unlike(Plan(), hosts)
        assert why.keys() == {"b", "c"}
        assert "than that of a, the first host of the resource group default" in why["b"]
        assert "--portable" in why["b"]
        plan = resources({"name": "default", "portable": True})
        assert by_host(plan_slots(plan, hosts)).keys() == {"a", "b"}
        why = unlike(plan, hosts)
        assert why.keys() == {"c", "old"}, "an agent of an older version does not know its kind for portable jobs"
        assert "--portable" not in why["c"]
        groups = resources({"name": "default"}, {"name": "arm", "hosts": ["c"]})
        assert by_host(plan_slots(groups, hosts)).keys() == {"a", "c", "old"}
        assert unlike(Plan(), [Host("shared"), *hosts]).keys() == {"b", "c"}, "one of unknown kind decides nothing"

    def test_this_host(self, nvidia_smi):
        nvidia_smi(GPUS)
        assert replace(find_host(0), name="h") == Host("h", (0, 1, 2), usable_cores(), 0)
        assert find_host(2).name == socket.gethostname()
