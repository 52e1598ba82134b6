"""`edt simulate`, as a person runs it: another process, real files."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from edt_server.simulator.command import main

WORKLOADS = ("benchmarks/workloads/workload.csv", "--apps", "benchmarks/workloads/apps.csv")


@pytest.fixture
def edt(root):
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "edt_sdk.cli", "simulate", *map(str, words)],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_our_workload_under_two_policies(edt, tmp_path):
    picture, figures = tmp_path / "out.svg", tmp_path / "out.json"
    done = edt(*WORKLOADS, "--policy", "rigid-fifo,fairshare", "--picture", picture, "--json", figures)
    assert done.returncode == 0, done.stderr
    head, rigid, fair = done.stdout.splitlines()
    assert head.split()[:2] == ["policy", "mean"]
    assert (rigid.split()[0], fair.split()[0]) == ("rigid-fifo", "fairshare")
    ElementTree.parse(picture)
    told = json.loads(figures.read_text())["runs"]
    assert len(told["fairshare"]["jobs"]) == 160
    # What the whole product is about: jobs that share end earlier than jobs that queue.
    assert told["fairshare"]["figures"]["mean"] < told["rigid-fifo"]["figures"]["mean"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "What shall be simulated"),
        (("none.csv",), "none.csv cannot be read"),
        ((*WORKLOADS, "--policy", "sjf"), "no policy 'sjf'"),
        ((*WORKLOADS, "--slots", "many"), "how many slots"),
        ((*WORKLOADS, "--slots", "a=4,a=4"), "how many slots"),
        ((*WORKLOADS, "--plan", "README.md"), "is no plan"),
        ((*WORKLOADS, "--picture", "no/such/folder/x.svg"), "cannot be written"),
    ],
)
def test_wrong_use_is_one_sentence(root, monkeypatch, capsys, words, says):
    monkeypatch.chdir(root)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("edt: ")
    assert "Traceback" not in said


def test_options_that_are_none(edt):
    done = edt(*WORKLOADS, "--resize-cost", "-1")
    assert done.returncode == 2
    assert "seconds" in done.stderr
    assert edt("--help").stdout.startswith("usage: edt simulate")


def test_a_plan_with_two_queues(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(root)
    (tmp_path / "w.csv").write_text(
        "name,time,num_replicas,duration,instance_group\na,0,8,100,research\nb,0,8,100,production\n"
    )
    queues = [{"name": "research"}, {"name": "production", "share": 3}]
    as_printed = {"instance_groups": queues, "version": "what `edt plan` prints"}
    (tmp_path / "plan.json").write_text(json.dumps(as_printed))
    words = [tmp_path / "w.csv", "--plan", tmp_path / "plan.json", "--slots", 8, "--json", tmp_path / "out.json"]
    assert main([*map(str, words)]) == 0
    a, b = json.loads((tmp_path / "out.json").read_text())["runs"]["plan"]["jobs"]
    assert b["ended"] < a["ended"]
    capsys.readouterr()
    (tmp_path / "w.csv").write_text("name,time,num_replicas,duration,instance_group\na,0,8,100,night\n")
    assert main([*map(str, words)]) == 2
    assert "There is no instance group 'night'" in capsys.readouterr().err


def test_an_sdk_without_a_server_says_so(monkeypatch):
    from argparse import Namespace

    from edt_sdk import InvalidRequest
    from edt_sdk.cli import simulating

    monkeypatch.setattr(simulating, "find_spec", lambda name: None)
    with pytest.raises(InvalidRequest, match="pip install jupyter-edt"):
        simulating._run_simulate(Namespace(words=[]))


def test_recorded_events_beside_what_they_would_have_been(tmp_path, capsys):
    rows = [
        ("slots_changed", None, {"slots": [{"id": n, "host": "h", "device": "cpu"} for n in range(4)]}, 0),
        ("job_arrived", "a", {"job": "a", "priority": 5000, "max_workers": 4, "instance_group": "night"}, 0),
        *(("slot_granted", "a", {"slot": n, "slots": n + 1}, 0) for n in range(2)),
        ("job_demand", "a", {"job": "a", "demand": 4}, 1),
        ("job_gone", "a", {"job": "a"}, 100),
    ]
    lines = [
        {"seq": seq, "time": 1e9 + time, "job": job, "kind": kind, "data": data, "cause": None, "text": ""}
        for seq, (kind, job, data, time) in enumerate(rows, 1)
    ]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["--events", str(tmp_path / "e.jsonl"), "--json", str(tmp_path / "out.json")]) == 0
    told = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert told["recorded"]["figures"]["mean"] == 100
    # It had two workers and could have had all four.
    assert told["fairshare"]["figures"]["mean"] < 70
    assert "recorded" in capsys.readouterr().out
