"""The verbs of administrators: which requests they make, and how their answers read, in Python and at a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest

from edt_sdk import InvalidRequest, NotFound, Unprocessable
from edt_sdk.cli.sharing import groups_table
from edt_sdk.display.cluster_view import Cluster, cluster_text
from edt_sdk.schemas.errors import ChangedMeanwhile
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup

DEFAULT = msgspec.to_builtins(InstanceGroup(name="default"))
NIGHT = {**DEFAULT, "name": "night", "share": 2}
QUOTA = {
    "instance_group": "default", "quota": "user_bytes", "used": 12_000_000, "limit": 13_000_000, "near": True,
    "text": "ann has 12,000,000 of at most 13,000,000 bytes stored in the instance group default (user_bytes).",
}  # fmt: skip
REST = {"name": "default", "hosts": [], "slots": ""}


@pytest.fixture
def echo(peer):
    """The server answers each change with what it was told."""
    for method, path in (("POST", "instance-groups"), ("POST", "resource-groups"), ("PUT", "plan")):
        peer.on(method, path, lambda request: (200, json.loads(request.body)))
    peer.on("PATCH", "instance-groups/night", lambda request: (200, NIGHT | json.loads(request.body)))
    peer.on("PATCH", "resource-groups/default", lambda request: (200, REST | json.loads(request.body)))
    for path in ("instance-groups/night", "resource-groups/default"):
        peer.on("DELETE", path, lambda _: (204, None))
    peer.on("GET", "plan", {"resource_groups": [REST], "instance_groups": [DEFAULT]})
    peer.on("GET", "instance-groups", {"instance_groups": [DEFAULT, NIGHT]})
    peer.on("GET", "resource-groups", {"resource_groups": [REST]})
    return lambda: json.loads(peer.requests[-1].body)


class TestInPython:
    def test_the_plan(self, client, echo):
        assert client.plan() == Plan()
        assert client.set_plan(Plan()) == Plan()
        assert client.set_plan({"instance_groups": [{"name": "a"}]}).instance_groups[0].name == "a"
        assert echo() == {"instance_groups": [{"name": "a"}]}

    def test_a_plan_that_was_read_replaces_only_that_one(self, client, peer):
        answers = {"ETag": '"v1"', "Content-Type": "application/json"}
        body = json.dumps({"resource_groups": [REST], "instance_groups": [DEFAULT]}).encode()
        peer.on("GET", "plan", lambda _: (200, body, answers))
        peer.on("PUT", "plan", lambda request: (200, request.body, answers | {"ETag": '"v2"'}))
        read = client.plan()
        assert (read, read.version) == (Plan(), "v1")
        night = msgspec.structs.replace(read, instance_groups=(InstanceGroup(name="night"),))
        assert client.set_plan(night).version == "v2"
        assert peer.requests[-1].headers["If-Match"] == '"v1"'
        assert "version" not in json.loads(peer.requests[-1].body)
        client.set_plan({"version": "v1", "instance_groups": [{"name": "a"}]})
        assert peer.requests[-1].headers["If-Match"] == '"v1"'
        client.set_plan(Plan())
        assert "If-Match" not in peer.requests[-1].headers
        peer.on("PUT", "plan", lambda _: (412, {"message": "Changed.", "code": "changed_meanwhile", "hint": "Read."}))
        with pytest.raises(ChangedMeanwhile, match="Read"):
            client.set_plan(read)

    def test_instance_groups(self, client, echo, peer):
        assert [group.name for group in client.instance_groups()] == ["default", "night"]
        made = client.create_instance_group("night", policy="fifo", preemption=False, own=2, user_shares={"ann": 2})
        assert (made.policy, made.preemption, made.own, made.user_shares) == ("fifo", False, 2, {"ann": 2})
        assert client.update_instance_group("night", share=2, lend=None).share == 2
        assert echo() == {"share": 2, "lend": None}
        client.delete_instance_group("night")
        assert peer.paths()[-1] == "DELETE instance-groups/night"

    def test_quotas(self, client, echo, peer):
        made = client.create_instance_group("night", max_priority=7000, user_slots=4, max_bytes=10**9)
        assert (made.max_priority, made.user_slots, made.max_bytes, made.user_bytes) == (7000, 4, 10**9, None)
        peer.on("GET", "quota", {"quotas": [QUOTA]})
        (use,) = client.quotas()
        assert (use.quota, use.used, use.near) == ("user_bytes", 12_000_000, True)

    def test_resource_groups(self, client, echo, peer):
        assert client.resource_groups() == [ResourceGroup(name="default")]
        assert client.create_resource_group("big", hosts=["a"], slots=4).slots == "4"
        assert echo() == {"name": "big", "hosts": ["a"], "slots": "4", "portable": False}
        assert client.update_resource_group("default", slots=2).slots == "2"
        client.delete_resource_group("default")
        assert peer.paths()[-1] == "DELETE resource-groups/default"

    def test_names_are_quoted_and_checked(self, client, peer):
        with pytest.raises(NotFound):
            client.update_instance_group("night shift", share=2)
        assert peer.requests[-1].path == "instance-groups/night%20shift"
        for name in ("", "..", "a/b"):
            with pytest.raises(InvalidRequest):
                client.delete_instance_group(name)

    def test_what_the_server_refuses(self, client, peer):
        body = {"message": "share must lie in 1 … 1000000, not 0.", "code": "unprocessable", "field": "share"}
        peer.on("POST", "instance-groups", lambda _: (422, body))
        with pytest.raises(Unprocessable, match="share must lie") as refused:
            client.create_instance_group("night", share=0)
        assert refused.value.ids["field"] == "share"


@pytest.fixture
def edt(peer, runtime_dir):
    def run(*words, **options):
        env = {"JUPYTER_RUNTIME_DIR": str(runtime_dir), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"}
        env |= {"EDT_URL": peer.url, "EDT_TOKEN": peer.token}
        return subprocess.run(
            [sys.executable, "-m", "edt_sdk.cli", *map(str, words)],
            capture_output=True, text=True, env=env, **options,
        )  # fmt: skip

    return run


class TestAtAShell:
    def test_groups(self, edt, echo):
        assert edt("groups").stdout.splitlines() == [
            "GROUP    RESOURCES  POLICY     SHARE  OWN  LEND  BORROW  USERS  ALSO",
            "default  default    fairshare  1      0    all   any     -      -",
            "night    default    fairshare  2      0    all   any     -      -",
        ]
        assert json.loads(edt("groups", "-o", "json").stdout)["instance_groups"][1] == NIGHT

    def test_create_update_delete(self, edt, echo, peer):
        done = edt("group", "create", "night", "--policy", "priority", "--no-preemption", "--own", 2, "--lend", 1)
        assert (done.returncode, done.stderr) == (0, "")
        assert "priority" in done.stdout
        assert "no preemption" in done.stdout
        assert echo() | {"own": 2, "lend": 1, "policy": "priority", "preemption": False} == echo()
        assert (
            edt("group", "update", "night", "--lend", "all", "--user-share", "ann=3", "--user-share", "*=1").returncode
            == 0
        )
        assert echo() == {"lend": None, "user_shares": {"ann": 3, "*": 1}}
        edt("group", "update", "night", "--user-share", "none", "--pending-timeout", "never", "--preemption")
        assert echo() == {"user_shares": None, "pending_timeout": None, "preemption": True}
        assert edt("group", "delete", "night").stdout == "night\n"

    def test_quotas(self, edt, echo, peer):
        done = edt("group", "update", "night", "--user-slots", 4, "--max-running", "any", "--max-priority", 7000)
        assert (done.returncode, done.stderr) == (0, "")
        assert echo() == {"user_slots": 4, "max_running": None, "max_priority": 7000}
        assert "priority at most 7000, user_slots 4" in done.stdout
        peer.on("GET", "quota", {"quotas": [QUOTA]})
        assert edt("quota").stdout.splitlines() == [
            "GROUP    QUOTA       USED        LIMIT",
            "default  user_bytes  12,000,000  13,000,000",
        ]
        assert json.loads(edt("quota", "-o", "json").stdout) == {"quotas": [QUOTA]}
        peer.on("GET", "quota", {"quotas": []})
        assert edt("quota").stdout == "No quotas are set.\n"

    def test_resources(self, edt, echo):
        assert edt("resources").stdout.splitlines()[1].split() == ["default", "as", "found", "(all", "others)"]
        done = edt("resource", "create", "big", "--host", "a", "--host", "b", "--slots", "ncpus/2", "--portable")
        assert (done.returncode, done.stdout.splitlines()[1].split()) == (0, ["big", "ncpus/2,", "portable", "a,", "b"])
        edt("resource", "update", "default", "--rest", "--slots", 4)
        assert echo() == {"hosts": [], "slots": "4"}
        assert edt("resource", "delete", "default").stdout == "default\n"

    def test_the_plan_from_a_file(self, edt, echo, tmp_path):
        shown = edt("plan")
        assert json.loads(shown.stdout)["instance_groups"] == [DEFAULT]
        (tmp_path / "plan.json").write_text(shown.stdout)
        assert edt("plan", "--set", tmp_path / "plan.json").stdout == shown.stdout
        assert edt("plan", "--set", "-", input=shown.stdout).returncode == 0

    @pytest.mark.parametrize(
        "words",
        [
            ("group",), ("group", "create"), ("group", "update", "night"), ("group", "create", "a", "--policy", "x"),
            ("group", "create", "a", "--share", "much"), ("group", "create", "a", "--lend", "some"),
            ("group", "create", "a", "--user-share", "ann"), ("resource", "update", "default"),
            ("resource", "update", "default", "--rest", "--host", "a"), ("plan", "--set", "/no/such/file"),
            ("group", "delete", "nobody"), ("groups", "--set"),
        ],
    )  # fmt: skip
    def test_wrong_use(self, edt, echo, words):
        done = edt(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("edt: ")
        assert "Traceback" not in done.stderr

    def test_a_plan_that_is_none_is_not_sent(self, edt, peer):
        done = edt("plan", "--set", "-", input='{"instance_groups": [{"name": "a", "share": 0}]}')
        assert (done.returncode, "share of the instance group 'a'" in done.stderr) == (2, True)
        assert "PUT plan" not in peer.paths()


def test_children_stand_below_their_parents():
    groups = [InstanceGroup(name="day", parent="lab"), InstanceGroup(name="lab"), InstanceGroup(name="x", parent="day")]
    assert [line.split()[0] for line in groups_table(groups).splitlines()[1:]] == ["lab", "day", "x"]
    assert groups_table(groups).splitlines()[3].startswith("    x ")
    assert groups_table(groups[:1]).splitlines()[1].startswith("day")


def slot(number, job, host="a", device="cpu", resource="default"):
    return {"id": number, "host": host, "device": device, "resource_group": resource, "job": job}


def group(name, **changes):
    made = {
        "name": name, "resource_group": "default", "parent": "", "policy": "fairshare", "slots": 4, "jobs": 0,
        "waiting": [], "held": 0, "entitled": 0, "own": 0, "borrowed": 0, "lenders": {}, "lent": 0, "borrowers": {},
    }  # fmt: skip
    return made | changes


def job(name, **changes):
    made = {
        "id": f"{name}-1", "name": name, "owner": "ann", "group": "day", "priority": 5000, "held": 0, "leaving": 0,
        "entitled": 0, "asked": 4, "reason": "",
    }  # fmt: skip
    return made | changes


@pytest.fixture
def machine():
    lab = group("lab", own=3, held=3, entitled=4, borrowed=1, jobs=2, waiting=["x-1", "y-1"])
    day = group("day", parent="lab", own=1, held=2, entitled=3, borrowed=2, jobs=1)
    night = group("night", parent="lab", policy="fifo", own=2, held=1, entitled=1, lent=1, jobs=1)
    gpu, astray = slot(3, None, "bb", "cuda:0"), slot(4, None, "c", resource=None)
    return Cluster(
        slots=[slot(0, "one-1"), slot(1, "one-1"), slot(2, "two-1", "bb"), gpu, astray],
        resource_groups=[{"name": "default", "slots": 4, "free": 1}],
        groups=[lab, {**day, "lenders": {"night": 1}, "wanting": ["one-1"]}, {**night, "borrowers": {"day": 1}}],
        jobs=[
            job("one", held=2, leaving=1, reason="It has its share. " + "Many words. " * 12),
            job("two", group="night", held=1, asked=1),
        ],
        threads_per_slot=2,
        elsewhere=[{"device": "cuda:7", "data_dir": "/data"}],
    )


def test_the_machine_in_a_terminal(machine):
    text = cluster_text(machine, width=60)
    assert text.splitlines()[:9] == [
        "default: 4 slots, 1 free",
        "  a   CPU  AA",
        "  bb  CPU and GPU  B·",
        "",
        "  GROUP    POLICY     OWN  HELD  DUE  OF ALL  BORROWED      LENT      JOBS  WAIT  WANT MORE",
        "  lab      fairshare  3    3     4    1       -             -         2     2     -",
        "  \xa0\xa0day    fairshare  1    2     3    1       1 from night  -         1     -     1",
        "  \xa0\xa0night  fifo       2    1     1    -       -             1 to day  1     -     -",
        "",
    ]
    assert "In no resource group: 1 slot of c" in text
    assert "In use by the job store in /data: cuda:7" in text
    assert "A  one-1  one   ann    day    5000      2 of 4, leaves 1" in text
    assert "B  two-1  two   ann    night  5000      1 of 1" in text
    assert all(len(line) <= 60 for line in text.splitlines() if line.startswith("   It") or "Many" in line)
    assert text == cluster_text(machine, width=60)
    assert repr(machine) == cluster_text(machine)
    assert machine["threads_per_slot"] == 2


def test_the_machine_in_a_notebook(machine):
    machine["jobs"][0]["name"] = "<script>"
    html = machine._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert html.count("<table") == 2
    assert "1 from night" in html


def test_an_idle_machine_and_one_with_many_slots(machine):
    machine.update(jobs=[], slots=[slot(n, None) for n in range(200)])
    assert "0 of 200 in use" in repr(machine)
    assert "No jobs." in repr(machine)
    assert "No jobs." in machine._repr_html_()


def test_the_verb(edt, peer, machine):
    peer.on("GET", "cluster", dict(machine))
    assert edt("cluster").stdout.startswith("default: 4 slots, 1 free\n")
    assert json.loads(edt("cluster", "-o", "json").stdout) == machine


def test_a_single_group_has_no_table_and_a_job_that_starts_its_own_maximum(machine):
    machine.update(groups=[group("default")], jobs=[job("one", held=0, asked=1, max_workers=4)])
    assert "BORROWED" not in repr(machine)
    assert "Borrowed" not in machine._repr_html_()
    assert "0 of 4" in repr(machine)
    assert "0 of 4" in machine._repr_html_()
