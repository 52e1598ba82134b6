"""The command line as a shell sees it: processes, streams, exit codes."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from edt_sdk.cli import build_parser
from edt_sdk.schemas.job import JobState

EDT = [sys.executable, "-m", "edt_sdk.cli"]


def environment(runtime_dir, peer=None):
    own = {"JUPYTER_RUNTIME_DIR": str(runtime_dir), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"}
    return own | ({"EDT_URL": peer.url, "EDT_TOKEN": peer.token} if peer else {})


@pytest.fixture
def edt(peer, runtime_dir):
    def run(*words, server=True, **variables):
        env = environment(runtime_dir, peer if server else None) | variables
        return subprocess.run([*EDT, *map(str, words)], capture_output=True, text=True, env=env)

    return run


@pytest.fixture
def view(make_view):
    def make(**changes):
        return msgspec.to_builtins(make_view(**changes))

    return make


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "digits"
    made.mkdir()
    (made / "train.py").write_text("# FabricModel")
    return made


def test_submit_prints_the_id_alone(edt, peer, folder, view):
    peer.on("POST", "jobs", lambda _: (201, view()))
    done = edt("submit", folder, "--max-workers", 4, "--env", "A=b=c", "--name", "n", "--", "--epochs", "8", "--", "x")
    assert (done.returncode, done.stdout) == (0, "edt-1\n")
    assert "train.py" in done.stderr
    spec = peer.requests[-1].body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
    sent = json.loads(spec)
    assert sent["args"] == ["--epochs", "8", "--", "x"]
    assert sent["env"] == {"A": "b=c"}
    assert (sent["name"], sent["max_workers"]) == ("n", 4)


def test_a_dry_run_lists_the_files_and_the_forecast_and_submits_nothing(edt, peer, folder):
    text = "It would start at once, on 1 of 8 slots (8 are free)."
    peer.on("POST", "forecasts", {"code": "now", "text": text, "start_low": 0, "start_high": 0, "slots": 1})
    (folder / "big.bin").write_bytes(b"x" * 3000)
    done = edt("submit", folder, "--dry-run", "--max-workers", 4)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Would pack 2 files, ")
    assert [line.split() for line in lines if "big.bin" in line or "train.py" in line] == [
        ["big.bin", "3.0", "kB"],
        ["train.py", "13", "B", "←", "main"],
    ]
    assert lines[-1] == text
    assert "POST jobs" not in peer.paths()
    assert json.loads(peer.requests[-1].body)["max_workers"] == 4


def test_of_a_notebook_the_cells_of_a_tag(edt, peer, tmp_path, view):
    peer.on("POST", "jobs", lambda _: (201, view()))
    cells = [
        {"cell_type": "code", "metadata": {"tags": tags}, "source": "x = 1  # FabricModel"} for tags in ([], ["edt"])
    ]
    (tmp_path / "book.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    sizes = []
    for more in ((), ("--tag", "edt")):
        done = edt("submit", tmp_path / "book.ipynb", *more)
        assert done.returncode == 0, done.stderr
        sizes.append(int(next(line for line in done.stderr.splitlines() if "main.py" in line).split()[1]))
    assert sizes[0] > sizes[1]
    refused = edt("submit", tmp_path / "book.ipynb", "--tag", "other")
    assert refused.returncode == 2
    assert "No code cell of book.ipynb has the tag 'other'" in refused.stderr


def test_a_submission_may_begin_with_another_jobs_weights(edt, peer, folder, view):
    peer.on("POST", "jobs", lambda _: (201, view()))
    assert edt("submit", folder, "--warm-start", "edt-0", "--mode", "fast").returncode == 0
    sent = json.loads(peer.requests[-1].body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0])
    assert (sent["warm_start"], sent["mode"]) == ("edt-0", "fast")


def test_a_submission_may_name_sizes_and_patience(edt, peer, folder, view):
    peer.on("POST", "jobs", lambda _: (201, view()))
    sizes = ("--max-workers", 8, "--min-workers", 4, "--slots-per-unit", 2)
    assert edt("submit", folder, *sizes, "--pending-timeout", "90").returncode == 0
    sent = json.loads(peer.requests[-1].body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0])
    assert (sent["min_workers"], sent["slots_per_unit"], sent["pending_timeout"]) == (4, 2, 90)
    assert sent["instance_group"] == ""
    refused = edt("submit", folder, "--max-workers", 3, "--slots-per-unit", 2)
    assert (refused.returncode, refused.stderr) == (
        2, "edt: max_workers is 3, which is no multiple of slots_per_unit, 2. Say max_workers=2.\n",
    )  # fmt: skip


@pytest.mark.parametrize(("state", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 1)])
def test_waiting_says_how_it_ended(edt, peer, folder, view, state, code):
    peer.on("POST", "jobs", lambda _: (201, view()))
    peer.on("GET", "jobs/edt-1", view(state=JobState(state), message="because"))
    done = edt("submit", folder, "--wait")
    assert (done.returncode, done.stdout) == (code, "edt-1\n")
    assert edt("wait", "edt-1").returncode == code
    if code:
        assert f"edt: Job edt-1 (digits) ended as {JobState(state).shown}: because" in done.stderr


def test_a_failure_is_printed_once(edt, peer, view):
    shown = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: too small'
    message = f"train.py raised ValueError: too small.\nLast lines of driver.stderr:\n{shown}"
    peer.on("GET", "jobs/edt-1", view(state=JobState.FAILED, message=message))
    done = edt("wait", "edt-1")
    assert done.returncode == 1
    assert done.stderr.count("ValueError: too small") == 1
    assert 'File "train.py", line 1' in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("submit", ".", "--maxworkers", 4),
            "unrecognized arguments: --maxworkers. Did you mean --max-workers? See: edt submit --help",
        ),
        (("update", "edt-1", "--prority=3"), "--prority. Did you mean --priority? See: edt update --help"),
        (("sumbit", "."), "there is no `edt sumbit`. Did you mean submit? See: edt --help"),
        (("group", "creat", "a"), "there is no `edt group creat`. Did you mean create? See: edt group --help"),
        (("submit", ".", "--max-worker", "2"), "--max-worker. Did you mean --max-workers? See: edt submit --help"),
        (("pause", "edt-1"), "there is no `edt pause`. Did you mean suspend? See: edt --help"),
        (("frobnicate",), "there is no `edt frobnicate`. See: edt --help"),
        (
            ("priority", "a", "3"),
            "there is no `edt priority`. --priority is an option of `edt submit`, `edt clone`, `edt",
        ),
        (
            ("submit", "rings", "--epochs", "5"),
            "--epochs. Arguments of your script go after --, as in `edt submit rings -- --epochs 5`. See: edt submit",
        ),
        (("submit", "rings", "--args", "--epochs 5"), "after --, as in `edt submit rings -- --epochs 5`."),
        (("clone", "edt-1", "--args=--epochs 5"), "after --, as in `edt clone edt-1 -- --epochs 5`."),
        (("list", "more"), "unrecognized arguments: more. See: edt list --help"),
        (("submit", ".", "--mode", "exat"), "(choose from 'exact', 'fast'). See: edt submit --help"),
        (("submit", ".", "--framework", "pytorch"), "There is no framework 'pytorch'. Did you mean 'PyTorch'?"),
    ],
)
def test_a_misspelled_word(edt, words, says):
    done = edt(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wait_that_times_out(edt, peer, view, stream):
    peer.on("GET", "jobs/edt-1", view())
    peer.on("GET", "jobs/edt-1/events", lambda _: stream(b": alive\n\n", end=False))
    done = edt("wait", "edt-1", "--timeout", "0.2")
    assert (done.returncode, done.stdout) == (3, "")
    assert "still RUNNING" in done.stderr


def test_no_server(edt):
    done = edt("list", server=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("edt: No jupyter-edt server found")
    assert " lab, or jupyter edt" in done.stderr
    assert "Trainings go on without it." in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["dance"],
        ["submit"],
        ["submit", "x", "--max-workers", "many"],
        ["submit", "no/such/folder"],
        ["submit", ".", "--mode", "loose"],
        ["suspend"],
        ["resume", "edt-1", "--checkpoint", ""],
        ["submit", "x", "--env", "novalue"],
        ["stop"],
        ["stop", "--all", "edt-1"],
        ["logs", "edt-1", "--stream", "everything"],
        ["list", "--", "x"],
        ["clone"],
        ["clone", "edt-1", "--env", "novalue"],
        ["model", "update", "digits"],
        ["list", "--state", "asleep"],
        ["get", "unknown"],
        ["update", "edt-1"],
        ["download", "edt-1", "--part", "weights"],
    ],
)
def test_wrong_use(edt, peer, view, words):
    peer.on("GET", "jobs/edt-1", view())
    done = edt(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "edt: " in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_server_refuses_is_its_sentence(edt, peer, view):
    peer.on("GET", "jobs/edt-1", view())
    peer.on("POST", "jobs/edt-1/resume", lambda _: (409, {"message": "It runs.", "code": "conflict", "hint": "Wait."}))
    done = edt("resume", "edt-1")
    assert (done.returncode, done.stderr) == (2, "edt: It runs. Wait.\n")
    peer.on("POST", "jobs/edt-1/resume", lambda _: (500, {"message": "Disk full."}))
    assert edt("resume", "edt-1").returncode == 4


def test_list_and_get(edt, peer, view):
    peer.on("GET", "jobs", {"jobs": [view()]})
    peer.on("GET", "jobs/edt-1", view())
    head, row = edt("list").stdout.splitlines()
    assert " ".join(head.split()) == "ID NAME STATE SLOTS DONE PRIORITY OWNER AGE LOSS ACCURACY ARGS TAGS WHY"
    assert row.split()[:7] == ["edt-1", "digits", "RUNNING", "2/4", "-", "5000", "ann"]
    assert json.loads(edt("list", "-o", "json").stdout)["jobs"][0]["id"] == "edt-1"
    edt("list", "--project", "mnist", "--experiment", "rates")
    asked = next(r.query for r in reversed(peer.requests) if r.path == "jobs")
    assert {name: asked[name] for name in ("project", "experiment")} == {"project": "mnist", "experiment": "rates"}
    assert json.loads(edt("get", "edt-1", "-o", "json").stdout)["state"] == "RUNNING"
    got = edt("get", "edt-1").stdout.splitlines()
    assert got[0] == "Job edt-1 (digits): running, 2 of at most 4 slots."
    assert "  Priority    5000" in got
    assert edt("get", "dig").stdout.splitlines()[0] == got[0]
    peer.on("GET", "jobs", {"jobs": []})
    done = edt("list")
    assert (done.stdout, done.returncode) == ("", 0)
    assert "edt submit" in done.stderr


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((404, {"message": "Not Found"}), id="an older server"),
        pytest.param((403, {"message": "No.", "code": "not_allowed"}), id="jobs alone may be read"),
    ],
)
def test_where_no_searches_are_to_be_had_jobs_are_shown_all_the_same(edt, peer, view, answer):
    peer.on("GET", "jobs", {"jobs": [view()]})
    peer.on("GET", "cluster", {"slots": [], "resource_groups": [], "groups": [], "jobs": []})
    peer.on("GET", "searches", lambda _: answer)
    for verb in ("list", "top"):
        done = edt(verb)
        assert done.returncode == 0, done.stderr
        assert "digits" in done.stdout.splitlines()[-1]


def test_a_misspelled_job_is_answered_with_the_nearest(edt, peer, view):
    peer.on("GET", "jobs", {"jobs": [view(id="first-erpxqa", name="first"), view(id="other-abcdef", name="other")]})
    for wrong, meant in (("frist", "first"), ("first-erpxqe", "first-erpxqa")):
        peer.on("GET", f"jobs/{wrong}", lambda _: (404, {"message": "There is no such job.", "code": "not_found"}))
        done = edt("update", wrong, "--priority=3")
        assert (done.returncode, done.stderr) == (2, f"edt: There is no such job. Did you mean {meant!r}?\n")


def test_an_update_confirms_what_it_changed(edt, peer, view):
    peer.on("GET", "jobs/edt-1", view())
    peer.on("PATCH", "jobs/edt-1", view(priority=10000))
    done = edt("update", "edt-1", "--priority", 10000)
    said, job = done.stdout.splitlines()
    assert said == "Changed: priority 10000 (was 5000)."
    assert job.startswith("Job edt-1 (digits)")


def test_suspend_and_resume_show_the_job(edt, peer, view):
    peer.on("GET", "jobs/edt-1", view(state=JobState.SUSPENDED, slots=0))
    peer.on("POST", "jobs/edt-1/suspend", view(state=JobState.SUSPENDED, slots=0))
    assert "suspended" in edt("suspend", "edt-1").stdout
    peer.on("POST", "jobs/edt-1/resume", view())
    peer.on("GET", "jobs/edt-1", view())
    for words, sent in (((), b""), (("--checkpoint", "epoch-3"), b'{"checkpoint":"epoch-3"}')):
        assert "running" in edt("resume", "edt-1", *words).stdout
        assert [r.body for r in peer.requests if r.method == "POST"][-1] == sent


def test_stop_prints_what_it_stopped(edt, peer, view):
    peer.on("POST", "jobs/stop", {"jobs": ["a", "b"]})
    assert edt("stop", "--all").stdout == "a\nb\n"
    peer.on("GET", "jobs/edt-1", view())
    peer.on("POST", "jobs/edt-1/stop", view(state=JobState.KILLED))
    assert edt("stop", "edt-1").stdout == "edt-1\n"


def test_nothing_is_stopped_or_deleted_when_a_name_is_not_clear(edt, peer, view):
    twice = [view(id="edt-1"), view(id="edt-2"), view(id="one-3", name="one")]
    peer.on("GET", "jobs", {"jobs": twice})
    for verb in ("stop", "delete"):
        done = edt(verb, "one", "digits")
        assert (done.returncode, done.stdout) == (2, "")
        assert "'digits' could be 2 jobs: edt-1 (running, from " in done.stderr
    assert {request.method for request in peer.requests} == {"GET"}
    peer.on("DELETE", "jobs/one-3", lambda _: (204, None))
    assert edt("delete", "one").stdout == "one-3\n"
    peer.on("POST", "jobs/one-3/stop", view(id="one-3"))
    assert edt("stop", "one").stdout == "one-3\n"


def test_verbs_are_listed_in_groups(edt):
    text = edt("--help").stdout
    heads = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads[-6:] == ["jobs:", "searches:", "machine:", "catalogue:", "deployments:", "administration:"]
    verbs = build_parser()._subparsers._group_actions[0].choices
    assert {verb for verb in verbs if f"\n  {verb} " in text} == set(verbs)


@pytest.mark.parametrize(
    ("words", "help_of"),
    [
        (("get", "edt-1", "--maxworkers", "4"), "edt get"),
        (("group", "create", "a", "--shar", "--wrong"), "edt group create"),
        (("model", "train", "m", "--wrong"), "edt model train"),
    ],
)
def test_an_unknown_option_names_the_help_of_its_verb(edt, words, help_of):
    done = edt(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"See: {help_of} --help\n")


def test_the_live_view_in_a_pipe_is_one_page(edt, peer, view, make_search):
    peer.on("GET", "jobs", lambda request: (200, {"jobs": [] if "limit" in request.query else [view()]}))
    live = {"id": "edt-1", "owner": "ann", "name": "digits", "held": 2, "asked": 4, "leaving": 0, "reason": ""}
    slots = [{"id": 0, "host": "h", "device": "cpu", "resource_group": "default", "job": "edt-1"}]
    pools = [{"name": "default", "slots": 1, "free": 0}]
    peer.on("GET", "cluster", {"slots": slots, "resource_groups": pools, "groups": [], "jobs": [live]})
    for words in (("top",), ("top", "--once", "--mine")):
        lines = edt(*words).stdout.splitlines()
        assert lines[0].startswith("edt top ")
        # It is none of the newest jobs, so it was asked for by its state.
        assert lines[-1].split()[:4] == ["A", "edt-1", "digits", "RUNNING"]
    live["search"] = "digits-lr-1"
    peer.on("GET", "searches", {"searches": [msgspec.to_builtins(make_search())]})
    rows = edt("top").stdout.splitlines()[-2:]
    assert rows[0].split()[:4] == ["A", "digits-lr-1", "digits-lr", "RUNNING"]
    assert peer.requests[-2].query == {"all": "1", "limit": "200"}, "for a trial jobs are not asked by their state"


def read_until(terminal, words):
    """Read what a program writes to its terminal, until it has written these words."""
    shown = ""
    while words not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


def test_the_live_view_says_when_the_server_is_away_and_gives_the_terminal_back(peer, runtime_dir, view):
    machine = {"slots": [], "resource_groups": [], "groups": [], "jobs": []}
    peer.on("GET", "jobs", {"jobs": [view()]})
    peer.on("GET", "cluster", machine)
    terminal, other_end = os.openpty()
    env = environment(runtime_dir, peer) | {"COLUMNS": "120", "LINES": "20"}
    with subprocess.Popen([*EDT, "top"], stdin=other_end, stdout=other_end, stderr=other_end, env=env) as process:
        os.close(other_end)
        read_until(terminal, "RUNNING")
        peer.on("GET", "cluster", lambda _: (500, {"message": "It is broken."}))
        read_until(terminal, "Not renewed since then: It is broken.")
        read_until(terminal, "edt-1")  # what was seen last stays
        peer.on("GET", "cluster", machine)
        while "Not renewed" in read_until(terminal, "edt-1"):
            pass
        process.send_signal(signal.SIGTERM)
        read_until(terminal, "\x1b[?1049l")
        assert process.wait(180) == 128 + signal.SIGTERM
    os.close(terminal)


def completed(edt, line, **variables):
    told = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    return edt(**told, **variables)


@pytest.fixture
def offered(edt, tmp_path):
    """What Tab offers after these words; argcomplete writes it to a descriptor of the shell, here to a file."""

    def offer(line, **more):
        told = tmp_path / "told"
        told.write_text("")
        completed(edt, line, _ARGCOMPLETE_STDOUT_FILENAME=str(told), **more)
        return [word.strip() for word in told.read_text().split("\n") if word]

    return offer


def test_tab_offers_verbs_options_and_what_the_server_knows(offered, peer, view):
    jobs = [view(id="quick-1", name="quickstart"), view(id="same-1", name="same"), view(id="same-2", name="same")]
    peer.on("GET", "jobs", {"jobs": jobs})
    peer.on("GET", "instance-groups", {"instance_groups": [{"name": "default"}, {"name": "night"}]})
    assert offered("edt wh") == ["what-if"]
    assert offered("edt get quick") == ["quickstart"]
    assert offered("edt get ") == ["quickstart", "same-1", "same-2"]
    assert offered("edt stop quickstart sa") == ["same-1", "same-2"]
    jobs.append(view(id="over-1", name="over", state=JobState.FINISHED))
    assert offered("edt get ov") == ["over"]
    assert offered("edt update ov") == offered("edt stop ov") == []
    assert offered("edt update quickstart --inst") == ["--instance-group"]
    assert offered("edt update quickstart --instance-group n") == ["night"]
    assert offered("edt group update ni") == ["night"]
    assert offered("edt group create ni") == []
    assert offered("edt list --state sto") == ["stopped"]
    assert offered("edt picture quickstart spa") == ["spark"]
    assert offered("edt logs quickstart --stream wo") == ["worker"]


def test_tab_without_a_server_offers_no_jobs_and_says_nothing(offered):
    assert offered("edt get quick", EDT_URL="http://127.0.0.1:1/") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell(edt, shell):
    done = edt("completion", shell, server=False)
    assert done.returncode == 0, done.stderr
    assert "edt" in done.stdout
    assert "_ARGCOMPLETE" in done.stdout


def test_update_delete_and_the_readers(edt, peer, view, tmp_path):
    peer.on("GET", "jobs/edt-1", view())
    peer.on("PATCH", "jobs/edt-1", view(priority=7))
    assert edt("update", "edt-1", "--priority", "7").returncode == 0
    assert edt("update", "edt-1", "--tags", "digits,lr 0.1", "--notes", "").returncode == 0
    sent = [r.body for r in peer.requests if r.method == "PATCH"][-1]
    assert json.loads(sent) == {"notes": "", "tags": ["digits", "lr 0.1"]}
    assert json.loads(next(r for r in peer.requests if r.method == "PATCH").body) == {"priority": 7}
    peer.on("DELETE", "jobs/edt-1", lambda _: (204, None))
    assert edt("delete", "edt-1").stdout == "edt-1\n"
    worker = {"worker": 0, "slot": 1, "host": "h", "pid": 4711, "rank": None, "generation": None}
    peer.on("GET", "jobs/edt-1/workers", {"workers": [worker]})
    assert edt("workers", "edt-1").stdout.splitlines()[1].split() == ["0", "1", "h", "4711", "-", "-"]
    weights = {"name": "model_epoch_1.pth", "epoch": 1, "bytes": 12, "time": 0.0, "kind": "weights"}
    exact = {**weights, "name": "update-8", "epoch": None, "kind": "exact", "training": 0, "update": 8}
    peer.on("GET", "jobs/edt-1/checkpoints", {"checkpoints": [weights, exact]})
    assert edt("checkpoints", "edt-1").stdout.splitlines() == [
        "NAME               KIND     TRAINING  EPOCH  UPDATE  BYTES  TIME (UTC)",
        "model_epoch_1.pth  weights  -         1      -       12     00:00:00",
        "update-8           exact    0         -      8       12     00:00:00",
    ]
    rows = [
        {
            "time": 1.0,
            "seq": 1,
            "slots": {"edt-1": 1},
            "free": 3,
            "capacity": 4,
            "cause": "",
            "text": "starts",
            "settled": True,
        }
    ]
    timeline = {"capacity": 4, "rows": rows, "names": {"edt-1": "digits"}, "total": 1, "thinned": False}
    peer.on("GET", "jobs/edt-1/timeline", timeline)
    peer.on("GET", "timeline", timeline)
    assert "A···" in edt("timeline").stdout
    assert json.loads(edt("timeline", "edt-1", "-o", "json").stdout) == timeline


def log_line(text):
    return {"time": 1.0, "stream": "stdout", "worker": None, "err": False, "text": text}


def test_logs_and_follow(edt, peer, view, stream, events):
    peer.on("GET", "jobs/edt-1", view())
    peer.on(
        "GET",
        "jobs/edt-1/logs",
        lambda r: (
            stream(events((1, "line", log_line("ä")), (1, "end", {})))
            if "follow" in r.query
            else (200, {"lines": [] if "after" in r.query else [log_line("b")], "next": "c", "done": True})
        ),
    )
    assert edt("logs", "edt-1").stdout == "b\n"
    assert edt("logs", "edt-1", "-f", "--stream", "worker", "--worker", "2").stdout == "ä\n"
    assert peer.requests[-1].query["worker"] == "2"
    assert edt("logs", "edt-1", "-f", "--tail", 7, "--since", 50).stdout == "ä\n"
    assert peer.requests[-1].query == {"stream": "all", "tail": "7", "since": "50.0", "follow": "1"}
    assert edt("logs", "edt-1", "--tail", 0).stderr.startswith("edt: tail is a number of lines above 0, not 0.")


def test_a_closed_pipe_is_quiet(peer, runtime_dir, view):
    peer.on("GET", "jobs/edt-1", view())
    many = [log_line("x" * 1000)] * 500
    peer.on(
        "GET",
        "jobs/edt-1/logs",
        lambda r: (200, {"lines": [] if "after" in r.query else many, "next": "c", "done": True}),
    )
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*EDT, "logs", "edt-1"], stdout=writer, stderr=subprocess.PIPE, env=environment(runtime_dir, peer)
    ) as process:
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        _, complaints = process.communicate()
    assert (process.returncode, complaints) == (0, b"")


def test_ctrl_c(peer, runtime_dir, view, stream):
    import threading

    waiting = threading.Event()

    def answer(_):
        waiting.set()
        return stream(b": alive\n\n", end=False)

    peer.on("GET", "jobs/edt-1", view())
    peer.on("GET", "jobs/edt-1/events", answer)
    with subprocess.Popen(
        [*EDT, "wait", "edt-1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(runtime_dir, peer),
    ) as process:
        assert waiting.wait(180)
        process.send_signal(signal.SIGINT)
        out, complaints = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "Stopped waiting. Job edt-1 goes on" in complaints
    assert "or at a shell: edt wait edt-1, edt stop edt-1" in complaints
    assert "Traceback" not in complaints


def test_without_a_verb_there_is_help(edt):
    done = edt(server=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "submit" in done.stderr
    assert "Exit codes:" in done.stderr


def test_version(edt):
    assert edt("--version").stdout.startswith("edt 0.")


def test_a_clone_says_what_differs_and_prints_its_id_alone(edt, peer, view):
    peer.on("GET", "jobs/edt-1", view())
    peer.on("POST", "submissions", lambda _: (201, view(id="edt-2")))
    done = edt("clone", "edt-1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "edt-2\n", "")
    assert json.loads(peer.requests[-1].body) == {"source": {"job": "edt-1"}, "main": None, "spec": {}}
    words = ("--priority", 8000, "--dataset", "", "--env", "A=b=c", "--main", "b.py", "--seed", 0, "--", "--lr", "1")
    assert edt("clone", "edt-1", *words).returncode == 0
    sent = json.loads(peer.requests[-1].body)
    spec = {"priority": 8000, "dataset": "", "env": {"A": "b=c"}, "seed": 0, "args": ["--lr", "1"]}
    assert (sent["main"], sent["spec"]) == ("b.py", spec)
    assert edt("clone", "edt-1", "--").returncode == 0
    assert json.loads(peer.requests[-1].body)["spec"] == {"args": []}


def test_a_clone_may_be_waited_for(edt, peer, view):
    peer.on("GET", "jobs/edt-1", view())
    ended = view(id="edt-2", state=JobState.FAILED)
    peer.on("POST", "submissions", lambda _: (201, ended))
    peer.on("GET", "jobs/edt-2", ended)
    assert edt("clone", "edt-1", "--wait").returncode == 1


def test_the_pythons_of_jobs_as_a_table(edt, peer):
    found = [
        {"python": "/a/python", "version": "3.11.9", "ready": True, "kernels": [{"name": "k", "display_name": "K 1"}]},
        {"python": "/b/python", "version": "3.12.1", "ready": False, "kernels": []},
    ]
    peer.on("GET", "interpreters", {"interpreters": found})
    assert edt("interpreters").stdout.splitlines() == [
        "PYTHON     VERSION  JUPYTER-EDT  KERNELS",
        "/a/python  3.11.9   yes          K 1",
        "/b/python  3.12.1   no           -",
    ]
    assert json.loads(edt("interpreters", "-o", "json").stdout) == {"interpreters": found}


def test_every_verb_of_the_design_is_there():
    verbs = build_parser()._subparsers._group_actions[0].choices
    assert set(verbs) == {
        "submit", "list", "get", "wait", "update", "suspend", "resume", "stop", "delete", "logs", "metrics", "story",
        "picture", "timeline", "workers", "checkpoints", "download", "cluster", "groups",
        "group", "resources", "resource", "plan", "simulate", "what-if", "dataset", "model",
        "validate", "validation", "clone", "interpreters", "top", "completion", "quota", "search", "version",
        "deploy", "deployment", "predict", "project", "host",
    }  # fmt: skip


def test_a_short_list_and_a_window(edt, peer, view, make_search):
    peer.on("GET", "jobs", {"jobs": [view()]})
    assert edt("list", "--limit", 1, "--trials").returncode == 0
    assert peer.requests[-1].query == {"limit": "1", "trials": "1"}
    peer.on("GET", "jobs", {"jobs": [view(created=901.0)], "next": "901.0,edt-1"})
    peer.on("GET", "searches", {"searches": [msgspec.to_builtins(make_search())]})
    assert "digits-lr" not in edt("list", "--limit", 1).stdout, "it is older than this page"
    peer.on("GET", "jobs", {"jobs": [view(created=899.0)], "next": "899.0,edt-1"})
    assert [row.split()[1] for row in edt("list").stdout.splitlines()] == ["NAME", "digits-lr", "digits"]
    row = {"time": 1.0, "slots": {"edt-1": 2}, "leaving": {}, "free": 2, "capacity": 4, "text": "Arrived."}
    peer.on("GET", "timeline", {"capacity": 4, "rows": [row], "names": {}, "total": 9, "thinned": True})
    done = edt("timeline", "--since", "1970-01-01T00:00:00+00:00", "--until", 60)
    assert peer.requests[-1].query == {"start": "0.0", "end": "60.0"}
    assert "Arrived." in done.stdout
    assert "1 of 9 changes" in done.stderr
    wrong = edt("timeline", "--since", "yesterday")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'yesterday' is no time" in wrong.stderr


# --- pictures ---------------------------------------------------------------------------------------------------------

SVG = '<svg xmlns="http://www.w3.org/2000/svg" aria-label="It goes down &amp; down."></svg>'


@pytest.fixture
def drawn(peer, view):
    """A job with a curve, and its pictures."""
    peer.on("GET", "jobs/edt-1", view())
    peer.on("GET", "jobs/edt-2", view(id="edt-2", name="other"))
    train = [{"update": at, "loss": 1.0 / (at + 1)} for at in range(20)]
    for job in ("edt-1", "edt-2"):
        peer.on("GET", f"jobs/{job}/metrics", {"train": train, "test": []})
    for path in ("jobs/edt-1/pictures/loss", "pictures/compare", "pictures/slots"):
        peer.on("GET", path, lambda _: (200, SVG.encode()))
    return peer


def test_a_picture_in_a_terminal_is_text(edt, drawn):
    done = edt("picture", "edt-1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "loss"
    assert lines[-1] == "It goes down & down."
    compared = edt("picture", "edt-1", "edt-2").stdout
    assert compared.startswith("JOB ")
    assert drawn.requests[-1].path == "jobs/edt-2/metrics"


def test_a_picture_in_a_file_is_the_servers(edt, drawn, tmp_path):
    done = edt("picture", "loss", "edt-1", "-o", tmp_path / "a.svg", "--theme", "dark", "--width", 300, "--log")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "It goes down & down.\n")
    assert (tmp_path / "a.svg").read_text() == SVG
    sent = drawn.requests[-1].query
    assert (sent["theme"], sent["width"], sent["y"]) == ("dark", "300", "log")
    assert edt("picture", "edt-1", "-o", "-").stdout == SVG


def test_a_picture_is_opened_from_a_file_that_stays(edt, drawn, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/shown\n')
    browser.chmod(0o700)
    done = edt("picture", "edt-1", "--open", "-o", tmp_path / "a.svg", BROWSER=str(browser))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shown").read_text().strip() == (tmp_path / "a.svg").as_uri()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["loss"], "loss is a picture of a job; name one"),
        (["loss", "spark", "edt-1"], "loss and spark are 2 pictures"),
        (["spark", "edt-1", "edt-2"], "edt picture compare edt-1 edt-2"),
        (["edt-1", "--width", "300"], "--width is of the SVG"),
        (["edt-1", "-o", "/no/such/folder/a.svg"], "/no/such/folder/a.svg cannot be written: No such file"),
        (["edt-1", "efficiency", "-o", "-"], "no jobs/edt-1/pictures/efficiency"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(edt, drawn, words, said):
    done = edt("picture", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
