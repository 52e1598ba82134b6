"""The SDK and a real Jupyter Server with the extension, in a process of its own."""

import os
import subprocess
import sys
import zipfile

import pytest

from edt_sdk import Client, Conflict, JobFailed, JobState, NotFound, TooLarge, Unprocessable, WaitTimeout
from edt_sdk.http.discovery import running_servers
from edt_sdk.testing import LocalServer
from tests.waiting import until

TALKS = """\
# FabricModel
import sys
print("to stdout", sys.argv[1:], flush=True)
print("to stderr", file=sys.stderr, flush=True)
"""
SLEEPS = "# FabricModel\nimport time\nprint('up', flush=True)\ntime.sleep(300)\n"


def exact(job):
    return [each["name"] for each in job.checkpoints() if each["kind"] == "exact"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalServer(tmp_path_factory.mktemp("server"), slots=2) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as made:
        yield made


def test_a_kernel_of_the_server_finds_it_by_itself(server, monkeypatch):
    from jupyter_server.serverapp import list_running_servers

    runtime = server.root / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
    theirs = [(s["pid"], s["url"], s["token"]) for s in list_running_servers(str(runtime))]
    assert [(s.pid, s.url, s.token) for s in running_servers()] == theirs
    monkeypatch.setenv("JPY_PARENT_PID", str(server.pid))
    with Client() as found:
        assert (found.url, found.server.found) == (server.url, "the server of this kernel")
        assert found.server.local
    monkeypatch.delenv("JPY_PARENT_PID")
    with Client() as found:
        assert found.server.found == f"the running server with pid {server.pid}"


def test_a_job_that_fails_is_told_from_its_first_to_its_last_line(client, tmp_path):
    job = client.submit(TALKS, name="talks", max_workers=2, args=["--lr", "0.1"], progress=False)
    with pytest.raises(JobFailed, match=r"without calling") as failed:
        job.wait(180)
    assert failed.value.ids["state"] == "FAILED"
    log = job.logs()
    assert "to stdout ['--lr', '0.1']" in log
    assert "to stderr" in log
    assert "to stderr" not in job.logs("stdout")
    assert [str(line) for line in job.logs(follow=True)] == str(log).splitlines()
    story = job.story()
    assert "max 2 workers" in repr(story)
    assert [event.time for event in story] == sorted(event.time for event in story)
    assert job.timeline().names[job.id] == "talks"
    assert "talks" in repr(client.timeline())
    with zipfile.ZipFile(job.download(tmp_path, "log")) as archive:
        assert archive.namelist()
    assert job.id in [other.id for other in client.jobs(state="failed")]
    job.delete()
    with pytest.raises(NotFound):
        client.job(job.id)


def test_waiting_watching_and_stopping(client):
    job = client.submit(SLEEPS, framework="PyTorch", progress=False)
    lines = job.logs(follow=True)
    assert str(next(lines)) == "worker 0 | up"
    lines.close()
    with pytest.raises(WaitTimeout):
        job.wait(0.5, progress=False)
    assert job.update(priority=7).view.priority == 7
    assert job.id in repr(job)
    with pytest.raises(Conflict):
        job.delete()
    assert job.stop().view.message == f"{job.view.owner} is stopping it."
    with pytest.raises(JobFailed) as ended:
        job.wait(180)
    assert ended.value.ids["state"] == JobState.KILLED
    with pytest.raises(Conflict):
        job.update(priority=8)
    assert client.cluster()["slots"][0]["device"] == "cpu"


def test_suspending_going_back_and_beginning_with_its_weights(client, slow_trainer, tmp_path):
    """A whole life of a training with the SDK's verbs, and of a second one that begins with its weights."""
    go = tmp_path / "go"
    job = client.submit(slow_trainer, name="trains", max_workers=2, args=[str(go)], progress=False)
    until(lambda: "epoch-2" in exact(job), "the second epoch's checkpoint")
    with pytest.raises(Conflict, match="while workers run"):
        job.resume(checkpoint="epoch-1")
    assert job.suspend() is job
    until(lambda: job.status is JobState.SUSPENDED, "the last worker's leaving")
    assert f"edt resume {job.id}" in repr(job)
    with pytest.raises(WaitTimeout, match="SUSPENDED"):
        job.wait(0.2, progress=False)
    with pytest.raises(NotFound, match="no checkpoint epoch-99"):
        job.resume(checkpoint="epoch-99")
    assert {each["kind"] for each in job.checkpoints()} == {"weights", "exact"}

    job.resume()
    until(lambda: job.status is JobState.RUNNING, "the first worker")
    job.stop()
    with pytest.raises(JobFailed):
        job.wait(180, progress=False)
    go.touch()
    assert job.resume(checkpoint="epoch-1").wait(300, progress=False).view.progress.update == 200
    with pytest.raises(Conflict, match="is finished"):
        job.resume()

    second = client.submit(slow_trainer, warm_start=job, mode="fast", args=[str(go)], progress=False).wait(
        120, progress=False
    )
    assert second.view.mode == "fast"
    empty = client.submit(SLEEPS, framework="PyTorch", progress=False)
    with pytest.raises(Unprocessable, match="no weights yet"):
        client.submit(slow_trainer, warm_start=empty, args=[str(go)], progress=False)
    empty.stop()


def test_what_the_server_refuses(client, tmp_path, monkeypatch):
    with pytest.raises(Unprocessable, match="nowhere"):
        client.submit("# FabricModel\n", instance_group="nowhere", progress=False)
    with pytest.raises(NotFound):
        client.job("no-such-job")


def test_an_upload_that_the_server_breaks_off(tmp_path, tmp_path_factory):
    """It answers 413 and goes on reading only for a moment; the answer must arrive, not a broken connection."""
    import msgspec

    root = tmp_path_factory.mktemp("small")
    (tmp_path / "train.py").write_text("# FabricModel")
    (tmp_path / "data.bin").write_bytes(os.urandom(30_000_000))
    with LocalServer(root, slots=1, traits={"EdtApp.max_upload_bytes": 1_000_000}) as server, server.client() as client:
        client.info = msgspec.structs.replace(client.info, max_upload_bytes=1 << 40)
        with pytest.raises(TooLarge):
            client.submit(tmp_path, progress=False)
        assert client.jobs() == []


def test_the_command_line(server, tmp_path):
    (tmp_path / "talk.py").write_text(TALKS)
    env = {**os.environ, "EDT_URL": server.url, "EDT_TOKEN": server.token}

    def edt(*words):
        return subprocess.run(
            [sys.executable, "-m", "edt_sdk.cli", *words], capture_output=True, text=True, timeout=90, env=env
        )

    done = edt("submit", str(tmp_path / "talk.py"), "--wait", "--", "a", "b")
    assert done.returncode == 1
    job_id = done.stdout.strip()
    assert edt("logs", job_id, "--stream", "stdout").stdout.splitlines()[0] == "to stdout ['a', 'b']"
    assert job_id in edt("list").stdout
    assert edt("story", job_id).returncode == 0
    assert edt("stop", "--all").returncode == 0


def test_an_administrator_shares_the_slots_at_a_shell_and_in_python(server, client, tmp_path):
    (tmp_path / "sleep.py").write_text(SLEEPS)
    env = {**os.environ, "EDT_URL": server.url, "EDT_TOKEN": server.token}

    def edt(*words):
        return subprocess.run(
            [sys.executable, "-m", "edt_sdk.cli", *words], capture_output=True, text=True, timeout=90, env=env
        )

    assert edt("group", "create", "night shift", "--own", "1", "--lend", "0").returncode == 0
    assert [group.name for group in client.instance_groups()] == ["default", "night shift"]
    done = edt("submit", str(tmp_path / "sleep.py"), "--instance-group", "night shift", "--min-workers", "1")
    job = client.job(done.stdout.strip())
    assert job.view.instance_group == "night shift"
    shown = edt("cluster")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "night shift  fairshare  1    1     1" in shown.stdout
    assert repr(client.cluster()).startswith("default: 2 slots, 1 free")
    refused = edt("group", "delete", "night shift")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert job.id in refused.stderr
    assert edt("update", job.id, "--instance-group", "default").returncode == 0
    with pytest.raises(Unprocessable, match="share of the instance group 'night shift'"):
        client.update_instance_group("night shift", share=0)
    client.delete_instance_group("night shift")
    assert client.plan().instance_groups == (client.instance_groups()[0],)
    with pytest.raises(NotFound, match="There are: default"):
        client.delete_instance_group("night shift")
    job.stop()


def test_a_forecast_and_a_preview_submit_nothing(client, tmp_path):
    until(lambda: repr(client.cluster()).startswith("default: 2 slots, 2 free"), "what other tests have stopped to end")
    (tmp_path / "train.py").write_text("# FabricModel")
    told = client.forecast(max_workers=2)
    assert (told.code, told.slots) == ("now", 2)
    assert repr(told) == told.text
    with pytest.raises(Unprocessable, match="max_workers"):
        client.forecast(max_workers=0)
    assert client.forecast(max_workers=3, min_workers=3).code == "never"
    before = len(client.jobs())
    looked = client.preview(tmp_path, max_workers=2)
    assert looked.forecast == told
    assert "train.py" in [file.name for file in looked.files]
    assert len(client.jobs()) == before
