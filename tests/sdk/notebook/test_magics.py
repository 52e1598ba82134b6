import io
import json
import re
import tarfile

import msgspec
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from edt_sdk.client.job import Job
from edt_sdk.notebook.magics import EdtMagics
from edt_sdk.schemas.errors import PackageError
from edt_sdk.schemas.job import JobState

NAMES = {
    *("edt_submit", "edt_jobs", "edt_update", "edt_suspend", "edt_resume", "edt_stop"),
    *("edt_logs", "edt_story", "edt_timeline", "edt_what_if", "edt_download", "edt_monitor"),
    *("edt_metrics", "edt_workers", "edt_checkpoints", "edt_compare", "edt_delete"),
    *("edt_clone", "edt_get", "edt_wait", "edt_cluster", "edt_search"),
}


@pytest.fixture
def shell(peer, monkeypatch):
    monkeypatch.setenv("EDT_URL", peer.url)
    monkeypatch.setenv("EDT_TOKEN", peer.token)
    monkeypatch.setenv("EDT_NONINTERACTIVE", "1")
    made = InteractiveShell.instance()
    made.extension_manager.load_extension("edt_sdk")
    yield made
    ours = made.magics_manager.registry.get("EdtMagics")
    if ours is not None and ours._session.client is not None:
        ours._session.client.close()
    made.extension_manager.unload_extension("edt_sdk")
    InteractiveShell.clear_instance()


@pytest.fixture
def accepting(peer, make_view):
    peer.on("POST", "jobs", lambda _: (201, msgspec.to_builtins(make_view())))
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view()))
    peer.on("GET", "jobs", {"jobs": []})
    return peer


def spec_of(peer):
    body = next(r.body for r in reversed(peer.requests) if r.method == "POST")
    return msgspec.json.decode(body.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0])


def test_loading_asks_nobody_and_unloading_removes_everything(shell, peer):
    assert set(shell.magics_manager.magics["line"]) >= NAMES
    assert "edt_submit" in shell.magics_manager.magics["cell"]
    assert peer.requests == []
    matchers = len(shell.Completer.custom_matchers)
    shell.extension_manager.reload_extension("edt_sdk")
    assert len(shell.Completer.custom_matchers) == matchers
    shell.extension_manager.unload_extension("edt_sdk")
    assert not NAMES & set(shell.magics_manager.magics["line"])
    assert "edt_submit" not in shell.magics_manager.magics["cell"]
    assert len(shell.Completer.custom_matchers) == matchers - 1
    assert not any(isinstance(owner, EdtMagics) for owner in shell.magics_manager.registry.values())


def test_a_line_submits_a_folder(shell, accepting, tmp_path):
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "fit.py").write_text("# FabricModel")
    shell.user_ns["folder"] = str(folder)
    shell.run_cell("n = 3", store_history=False)
    shell.run_cell("job = %edt_submit \"$folder\" --max-workers {n} --env A='b c' -- --lr 0.1 'two words'")
    assert isinstance(shell.user_ns["job"], Job)
    spec = spec_of(accepting)
    assert (spec["name"], spec["main"], spec["max_workers"]) == ("my model", "fit.py", 3)
    assert spec["args"] == ["--lr", "0.1", "two words"]
    assert spec["env"] == {"A": "b c"}


def test_a_cell_is_the_script(shell, accepting):
    job = shell.run_cell_magic("edt_submit", "--name mnist --max-workers 2", "%time\nprint('{n} $x')  # FabricModel\n")
    assert job.id == "edt-1"
    spec = spec_of(accepting)
    assert (spec["name"], spec["main"]) == ("mnist", "main.py")


def test_it_may_name_sizes_and_patience(shell, accepting):
    sizes = "--max-workers 4 --min-workers 2 --slots-per-unit 2 --pending-timeout 1.5"
    shell.run_cell_magic("edt_submit", sizes, "pass  # FabricModel\n")
    spec = spec_of(accepting)
    assert (spec["min_workers"], spec["slots_per_unit"], spec["pending_timeout"]) == (2, 2, 1.5)


def test_it_may_begin_with_the_weights_of_a_job_in_a_variable(shell, accepting):
    first = shell.run_cell_magic("edt_submit", "--mode fast", "pass  # FabricModel\n")
    assert spec_of(accepting)["mode"] == "fast"
    shell.user_ns["first"] = first
    for named in ("first", "edt-1"):
        shell.run_cell_magic("edt_submit", f"--warm-start {named}", "pass  # FabricModel\n")
        assert spec_of(accepting)["warm_start"] == "edt-1"


@pytest.mark.parametrize(
    ("magic", "line", "says"),
    [
        ("edt_submit", "", "needs a folder"),
        ("edt_submit", "folder --max-workers many", "invalid int value"),
        ("edt_submit", "folder --unknown 3", "unrecognized arguments"),
        ("edt_submit", "folder --epochs 5", "after --, as in `%edt_submit folder -- --epochs 5`"),
        ("edt_submit", ". --maxworkers 4", "--maxworkers. Did you mean --max-workers"),
        ("edt_submit", "no/such/folder", "There is no folder or file"),
        ("edt_submit", ". --env A", "KEY=VALUE"),
        ("edt_submit", ". --mode loose", "invalid choice"),
        ("edt_logs", "edt-1 --stream everything", "invalid choice"),
        ("edt_logs", "", "Which job"),
        ("edt_stop", "", "needs the id"),
        ("edt_delete", "", "%edt_delete needs the id"),
        ("edt_compare", "edt-1", "two to five jobs"),
        ("edt_submit", ". --notebook", "leave the source out"),
        ("edt_submit", "--notebook", "no kernel of a notebook"),
        ("edt_submit", ". --max-workers {nmae}", "There is no variable 'nmae' in this notebook"),
        ("edt_submit", ". --max-worker 2", "--max-worker. Did you mean --max-workers"),
        ("edt_submit", ". --max-workers $count", "There is no variable 'count' in this notebook"),
        ("edt_suspend", "", "%edt_suspend needs the id"),
        ("edt_resume", "--checkpoint epoch-3", "%edt_resume needs the id"),
        ("edt_resume", "unknown --checkpoint epoch-3", "no jobs/unknown"),
        ("edt_story", "unknown", "no jobs/unknown"),
        ("edt_update", "edt-1", "Nothing to change"),
        ("edt_search", "folder", "--metric"),
        ("edt_search", "--metric loss", "%edt_search needs a folder"),
        ("edt_search", ". --metric loss --direction up", "invalid choice"),
        ("edt_clone", "edt-1 --env A", "KEY=VALUE"),
        ("edt_clone", "", "Which job"),
        ("edt_wait", "unknown", "no jobs/unknown"),
        ("edt_cluster", "edt-1", "unrecognized arguments"),
    ],
)
def test_wrong_use_is_one_clean_line(shell, accepting, magic, line, says, capsys):
    with pytest.raises(UsageError, match=says) as wrong:
        shell.run_line_magic(magic, line)
    assert wrong.value.__cause__ is None
    shell.run_cell(f"%{magic} {line}")
    shown = capsys.readouterr()
    assert says in shown.err + shown.out
    assert "Traceback" not in shown.err + shown.out


def test_no_server_is_one_clean_line_and_is_found_again_later(shell, accepting, peer, monkeypatch):
    monkeypatch.setenv("EDT_URL", "http://127.0.0.1:1/")
    with pytest.raises(UsageError, match="does not answer"):
        shell.run_line_magic("edt_jobs", "")
    monkeypatch.setenv("EDT_URL", peer.url)
    peer.on("GET", "jobs", {"jobs": []})
    assert shell.run_line_magic("edt_jobs", "") == []


def test_the_other_magics(shell, accepting, make_view, tmp_path):
    view = msgspec.to_builtins(make_view(priority=10000))
    accepting.on("PATCH", "jobs/edt-1", view)
    accepting.requests.clear()
    assert shell.run_line_magic("edt_update", "edt-1 --priority 10000").view.priority == 10000
    assert shell.run_line_magic("edt_update", "edt-1 --priority 10000").id == "edt-1"
    # Of an id that was seen before it is not asked again.
    asked = ["GET jobs/edt-1", "PATCH jobs/edt-1", "PATCH jobs/edt-1"]
    assert [path for path in accepting.paths() if path != "GET "] == asked
    accepting.on("GET", "jobs", {"jobs": [view]})
    assert [job.id for job in shell.run_line_magic("edt_jobs", "")] == ["edt-1"]
    accepting.on("GET", "jobs/edt-1/events", {"events": [], "next": 0, "done": False})
    assert shell.run_line_magic("edt_story", "") == []  # the job touched last
    accepting.on("GET", "jobs/edt-1/logs", {"lines": [], "next": "a", "done": False})
    shell.run_cell("j = %edt_update edt-1 --priority 10000", store_history=False)
    assert shell.run_line_magic("edt_logs", "j --worker 1") == ""
    accepting.on("POST", "jobs/edt-1/suspend", view)
    assert shell.run_line_magic("edt_suspend", "j").id == "edt-1"
    accepting.on("POST", "jobs/edt-1/resume", view)
    assert shell.run_line_magic("edt_resume", "edt-1").id == "edt-1"
    assert accepting.requests[-1].body == b""
    assert shell.run_line_magic("edt_resume", "j --checkpoint epoch-3").id == "edt-1"
    assert json.loads(accepting.requests[-1].body) == {"checkpoint": "epoch-3"}
    accepting.on("POST", "jobs/edt-1/stop", view)
    assert shell.run_line_magic("edt_stop", "j").id == "edt-1"
    accepting.on("POST", "jobs/stop", {"jobs": ["edt-1"]})
    assert shell.run_line_magic("edt_stop", "--all") == ["edt-1"]
    accepting.on("GET", "jobs/edt-1/result", lambda _: (404, {"message": "nothing yet", "code": "not_found"}))
    with pytest.raises(UsageError, match="nothing yet"):
        shell.run_line_magic("edt_download", f"j -d {tmp_path}")


def test_a_job_is_cloned_with_what_differs(shell, accepting, make_view):
    accepting.on("POST", "submissions", lambda _: (201, msgspec.to_builtins(make_view(id="edt-2"))))
    shell.run_cell("first = %edt_get edt-1", store_history=False)
    again = shell.run_line_magic("edt_clone", "first --seed 3 --warm-start first --env A=1 -- --lr 0.01")
    assert again.id == "edt-2"
    sent = json.loads(accepting.requests[-1].body)
    assert sent["source"] == {"job": "edt-1"}
    assert sent["spec"] == {"seed": 3, "warm_start": "edt-1", "env": {"A": "1"}, "args": ["--lr", "0.01"]}
    # The newest job is the one that is meant now, and nothing but its package is said of it.
    accepting.on("GET", "jobs/edt-2", msgspec.to_builtins(make_view(id="edt-2")))
    shell.run_line_magic("edt_clone", "")
    assert json.loads(accepting.requests[-1].body) == {"source": {"job": "edt-2"}, "main": None, "spec": {}}


def test_a_job_is_shown_and_waited_for(shell, accepting, make_view, capsys):
    assert shell.run_line_magic("edt_get", "edt-1").id == "edt-1"
    accepting.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(state=JobState.FINISHED)))
    assert shell.run_line_magic("edt_wait", "").state is JobState.FINISHED
    accepting.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(state=JobState.FAILED, message="It broke.")))
    with pytest.raises(UsageError, match="It broke"):
        shell.run_line_magic("edt_wait", "edt-1 --timeout 20")


def test_the_machine_is_shown(shell, peer):
    machine = {"slots": [], "resource_groups": [], "groups": [], "jobs": [], "threads_per_slot": 1, "elsewhere": []}
    peer.on("GET", "cluster", machine)
    assert shell.run_line_magic("edt_cluster", "") == machine


def packed(peer, path="jobs"):
    """Name → bytes of the files of the last submission."""
    body = next(r.body for r in reversed(peer.requests) if r.method == "POST" and r.path == path)
    archive = body.partition(b"application/gzip\r\n\r\n")[2].rpartition(b"\r\n--")[0]
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {name: tar.extractfile(name).read().decode() for name in tar.getnames()}


def test_a_cell_takes_along_what_it_uses(shell, accepting, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDT_NONINTERACTIVE")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "helper.py").write_text("WORD = 'x'\n")
    shell.run_cell("import helper\nEPOCHS = 3\nimport math", store_history=True)
    shell.run_cell("def work(n):\n    return helper.WORD * n", store_history=True)
    result = shell.run_cell("%%edt_submit --name mine\nprint(work(EPOCHS))  # FabricModel", store_history=True)
    assert result.error_in_exec is None
    files = packed(accepting)
    space = {}
    assert "helper.py" in files
    assert "math" not in files["main.py"]
    exec(files["main.py"].replace("print(", "out = ("), space)
    assert space["out"] == "xxx"
    shown = capsys.readouterr().out
    assert "note: taken along from this notebook: work (function); helper (import); EPOCHS = 3" in shown


def test_a_cell_that_uses_what_cannot_travel(shell, accepting, capsys):
    shell.run_cell("frame = object()", store_history=True)
    accepting.requests.clear()
    shell.run_cell("%%edt_submit\nprint(frame)", store_history=True)
    shown = capsys.readouterr()
    assert "cannot be taken along as source: frame is an object." in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err
    assert accepting.requests == []


def notebook(path, *cells):
    made = [{"cell_type": "code", "metadata": {"tags": tags}, "source": source} for source, *tags in cells]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}))
    return path


def test_this_notebook_is_submitted_by_its_tags(shell, accepting, tmp_path):
    line = "job = %edt_submit --notebook --max-workers 2"
    path = notebook(tmp_path / "mine.ipynb", ("print('plot')",), ("train()  # FabricModel", "edt"), (line,))
    shell.user_ns["__vsc_ipynb_file__"] = str(path)
    shell.run_cell(line, store_history=True)
    assert packed(accepting)["main.py"] == "train()  # FabricModel\n"
    assert (spec_of(accepting)["name"], spec_of(accepting)["max_workers"]) == ("mine", 2)
    shell.run_cell(f"%edt_submit {path} --tag edt", store_history=True)
    assert packed(accepting)["main.py"] == "train()  # FabricModel\n"


def test_a_notebook_with_changes_that_are_not_saved_is_refused(shell, accepting, tmp_path, capsys):
    path = notebook(tmp_path / "mine.ipynb", ("print('train')", "edt"))
    shell.user_ns["__vsc_ipynb_file__"] = str(path)
    accepting.requests.clear()
    shell.run_cell("%edt_submit --notebook", store_history=True)
    shown = capsys.readouterr()
    assert "mine.ipynb has changes that are not saved" in shown.out + shown.err
    shell.user_ns["__vsc_ipynb_file__"] = str(tmp_path / "Untitled-1.ipynb")
    with pytest.raises(UsageError, match=r"Untitled-1.ipynb is not saved"):
        shell.run_line_magic("edt_submit", "--notebook")
    assert accepting.requests == []


def test_a_dry_run_submits_nothing(shell, accepting, tmp_path):
    (tmp_path / "train.py").write_text("# FabricModel")
    told = {"code": "now", "text": "It would start at once.", "start_low": 0, "start_high": 0, "slots": 1}
    accepting.on("POST", "forecasts", told)
    looked = shell.run_line_magic("edt_submit", f"{tmp_path} --dry-run --max-workers 3")
    assert repr(looked).endswith("\nIt would start at once.")
    assert "POST jobs" not in accepting.paths()
    assert json.loads(accepting.requests[-1].body)["max_workers"] == 3


def test_a_search_of_a_folder_keeps_the_places_of_its_values(shell, accepting, make_search, tmp_path):
    (tmp_path / "train.py").write_text("# FabricModel")
    accepting.on("POST", "searches", lambda _: (201, msgspec.to_builtins(make_search())))
    accepting.on("POST", "searches/preview", lambda _: (409, {"message": "No.", "code": "conflict"}))
    shell.user_ns["lr"] = 0.5  # a variable of that name is not put in
    line = f'%edt_search {tmp_path} --space "lr=log(1e-4,1e-1)" --metric test_accuracy --trials 27 --priority 9000'
    shell.run_cell(f"found = {line} -- --lr {{lr}}")
    assert shell.user_ns["found"].id == "digits-lr-1"
    spec = spec_of(accepting)
    assert (spec["metric"], spec["trials"], spec["job"]["priority"]) == ("test_accuracy", 27, 9000)
    assert (spec["space"]["lr"]["low"], spec["space"]["lr"]["log"]) == (1e-4, True)
    assert spec["job"]["args"] == ["--lr", "{lr}"]
    with pytest.raises(UsageError, match=r"No\."):
        shell.run_line_magic("edt_search", f"{line.partition(' ')[2]} --dry-run")
    assert accepting.paths()[-1] == "POST searches/preview"


def test_a_search_of_a_cell_takes_along_what_it_uses(shell, accepting, make_search):
    accepting.on("POST", "searches", lambda _: (201, msgspec.to_builtins(make_search())))
    shell.run_cell("EPOCHS = 3", store_history=True)
    cell = "%%edt_search --metric loss --space lr=0.1|0.2 --trials 2\nprint(EPOCHS)  # FabricModel"
    assert shell.run_cell(cell, store_history=True).error_in_exec is None
    assert "EPOCHS = 3" in packed(accepting, "searches")["main.py"]


def test_a_function_of_the_notebook_is_searched_and_submitted(shell, accepting, make_search):
    accepting.on("POST", "searches", lambda _: (201, msgspec.to_builtins(make_search())))
    shell.run_cell(
        "import json\nSTEPS = 3\ndef fit(lr, width=8): return json.dumps(STEPS)  # FabricModel", store_history=True
    )
    begin = "from edt_sdk import Client; found = Client().search(fit, space='lr=0.1|0.2', metric='loss', trials=2)"
    assert shell.run_cell(begin, store_history=True).error_in_exec is None
    main = packed(accepting, "searches")["main.py"]
    assert "STEPS = 3" in main
    assert main.endswith("import edt_sdk\n\nfit(**edt_sdk.params())\n")
    assert spec_of(accepting)["job"]["name"] == "fit"
    shell.run_cell("def whole(width=8): pass  # FabricModel", store_history=True)
    assert shell.run_cell("Client().submit(whole)", store_history=True).error_in_exec is None
    assert packed(accepting)["main.py"].endswith("whole(**edt_sdk.params())\n")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            "search(fit, space='rate=0.1|0.2', metric='loss', trials=2)",
            r"cannot call fit\(\): missing a required argument: 'lr'",
        ),
        ("search(fit, space='lr=0.1|0.2 depth=1|2', metric='loss', trials=2)", "unexpected keyword argument 'depth'"),
        ("submit(fit)", "missing a required argument: 'lr'"),
        ("submit(lambda: 1)", "<lambda> is not a function of this notebook"),
        ("submit(print)", "print is not a function of this notebook"),
    ],
)
def test_a_function_that_no_job_could_call_is_refused_at_once(shell, accepting, call, says):
    shell.run_cell("from edt_sdk import Client\ndef fit(lr, width=8): pass", store_history=True)
    asked = accepting.paths()
    error = shell.run_cell(f"Client().{call}", store_history=True).error_in_exec
    assert isinstance(error, PackageError)
    assert re.search(says, str(error))
    assert [each for each in accepting.paths()[len(asked) :] if each.startswith("POST")] == []


def test_looking_at_a_job(shell, accepting, make_view):
    accepting.on("GET", "jobs/edt-1/metrics", {"train": [], "test": []})
    assert shell.run_line_magic("edt_metrics", "edt-1 --points 9").train == []
    assert accepting.requests[-1].query == {"points": "9"}
    accepting.on("GET", "jobs/edt-1/workers", {"workers": []})
    assert not shell.run_line_magic("edt_workers", "")
    accepting.on("GET", "jobs/edt-1/checkpoints", {"checkpoints": []})
    assert not shell.run_line_magic("edt_checkpoints", "edt-1")
    accepting.on("GET", "pictures/compare", lambda _: (200, b"<svg xmlns='http://www.w3.org/2000/svg'/>"))
    shell.run_line_magic("edt_compare", "edt-1 edt-1 --x time")
    assert accepting.requests[-1].query["jobs"] == "edt-1,edt-1"
    assert accepting.requests[-1].query["x"] == "time"


def test_deleting_names_the_job(shell, accepting, capsys):
    accepting.on("DELETE", "jobs/edt-1", lambda _: (204, None))
    shell.run_line_magic("edt_delete", "edt-1")
    assert capsys.readouterr().out == "edt-1 is deleted, with its logs, checkpoints and results.\n"


def test_help_reads_well(shell):
    text = shell.magics_manager.magics["line"]["edt_submit"].__doc__
    assert text.splitlines()[:4] == [
        "%edt_submit [SOURCE] [options]",
        "%%edt_submit [options]",
        "",
        "Submit a training, and return its Job.",
    ]
    assert "  job = %edt_submit digits --max-workers 4 -- --epochs 20" in text
    assert "  --mode exact|fast" in text
    for name in NAMES:
        told = shell.magics_manager.magics["line"][name].__doc__
        assert told.startswith(f"%{name}"), name
        assert "::" not in told
        assert max(map(len, told.splitlines())) <= 110, name


def complete(shell, text):
    with provisionalcompleter():
        return {completion.text for completion in shell.Completer.completions(text, len(text))}


def test_completion(shell, accepting):
    accepting.requests.clear()
    assert complete(shell, "%edt_submit x --max") == {"--max-workers"}
    assert {"--name", "--max-workers", "--env"} <= complete(shell, "job = %edt_submit --")
    assert complete(shell, "%%edt_submit --th") == {"--threads-per-slot"}
    assert complete(shell, "%edt_submit x --mode ") == {"exact", "fast"}
    assert complete(shell, "%edt_logs x --stream ") == {"all", "driver", "stdout", "stderr", "elog", "worker"}
    assert complete(shell, "%edt_logs x --stream s") == {"stdout", "stderr"}
    assert accepting.requests == []
    shell.magics_manager.registry["EdtMagics"]._session.remember(["edt-77"])
    assert complete(shell, "%edt_stop edt-7") == {"edt-77"}
    assert "edt-77" in complete(shell, "%edt_story ")
    assert "--max-workers" not in complete(shell, "%edt_submit x -- --max")


def test_completion_of_values(shell, accepting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    for name in ("digits/train.py", "digits/model.py", "alone.py", "book.ipynb", "text.md", "with blank.py"):
        (tmp_path / name).write_text("# FabricModel")
    shell.run_cell("first = %edt_submit digits --main train.py", store_history=True)
    accepting.requests.clear()
    assert complete(shell, "%edt_submit ") >= {"digits/", "alone.py", "book.ipynb"}
    assert complete(shell, "%edt_submit digits/t") == {"digits/train.py"}
    assert complete(shell, "%edt_submit digits --main ") == {"train.py", "model.py"}
    assert complete(shell, "%edt_submit digits --instance-group d") == {"default"}
    assert complete(shell, "%edt_submit digits --framework dist") == {"distPyTorch"}
    assert complete(shell, "%edt_submit --notebook --ta") == {"--tag", "--tags"}
    assert complete(shell, "%edt_jobs --state RUN") == {"RUNNING"}
    assert complete(shell, "%edt_logs fir") == {"first"}
    assert {"first", "edt-1"} <= complete(shell, "%edt_compare first ")
    assert complete(shell, "%edt_download first -d di") == {"digits/"}
    assert accepting.requests == []


def test_what_if_and_the_timeline(shell, peer, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view()))
    settings = {"job": "edt-1", "priority": 8000, "max_workers": 4, "instance_group": "default"}
    share = {"job": "edt-1", "name": "digits", "now": 2, "then": 3}
    peer.on("GET", "jobs/edt-1/what-if", settings | {"shares": [share]})
    answer = shell.run_line_magic("edt_what_if", "edt-1 --priority 8000")
    assert peer.requests[-1].query == {"priority": "8000"}
    assert [(each.now, each.then) for each in answer.shares] == [(2, 3)]
    for path in ("timeline", "jobs/edt-1/timeline"):
        peer.on("GET", path, {"capacity": 4, "rows": [], "names": {}, "total": 0, "thinned": False})
    shell.run_line_magic("edt_timeline", "--since 1000 --until 2000")
    assert (peer.requests[-1].path, peer.requests[-1].query) == ("timeline", {"start": "1000.0", "end": "2000.0"})
    shell.run_line_magic("edt_timeline", "edt-1")
    assert peer.paths()[-1] == "GET jobs/edt-1/timeline"
    with pytest.raises(UsageError, match="'soon' is no time"):
        shell.run_line_magic("edt_timeline", "--since soon")
