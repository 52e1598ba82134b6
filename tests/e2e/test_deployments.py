"""Versions that answer requests, on the slots of a real server."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import requests
import torch

from edt_sdk import Conflict, Deployment, InvalidRequest, JobFailed, JobState, ServerUnreachable, Version
from edt_sdk.schemas.serving.deployments import DeploymentState
from tests.e2e.elastic import DATA
from tests.e2e.harness import Jobs
from tests.waiting import until

SCRIPT = f"""
{DATA}
import sys

def datasets():
    return data(64, 1), data(32, 2)

torch.manual_seed(int(sys.argv[1]))
model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.2), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(1, 8, 2)
"""
ROWS = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))


def trained(jobs: Jobs, folder: Path, seed: int) -> Version:
    """Train the net and keep it."""
    (folder / "train.py").write_text(SCRIPT)
    job = jobs.client.submit(folder, args=[str(seed)], max_workers=1, progress=False).wait(300, progress=False)
    return jobs.client.register(job, "net")


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))


def right(version: Version, rows: torch.Tensor = ROWS) -> np.ndarray:
    """Return what the model of a version answers in the notebook, to each row alone."""
    with torch.inference_mode():
        model = version.load_into(net()).eval()
        return torch.cat([model(row[None]) for row in rows]).numpy()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "net"
    made.mkdir()
    return made


def test_from_a_training_to_answers_a_new_version_and_back(four_slots: Jobs, folder: Path) -> None:
    client = four_slots.client
    first, second = trained(four_slots, folder, 1), trained(four_slots, folder, 2)
    made = client.deploy(first, max_batch=1, exact=True)
    assert (made.name, made.view.version) == ("net", "net/1")
    made.wait_ready(300)
    assert np.array_equal(made.predict(ROWS), right(first)), "equal, bit by bit"
    assert made.predict(ROWS[0].tolist()) is not None
    example = torch.tensor(first.example())
    assert np.array_equal(made.predict(example), right(first, example))
    with pytest.raises(InvalidRequest, match="6"):
        made.predict(ROWS[:, :5])
    # With a key, past Jupyter Server.
    assert requests.post(made.url, json={"inputs": ROWS.tolist()}).status_code == 401
    key = made.create_key("shop")
    bearer = {"Authorization": f"Bearer {key}"}
    answer = requests.post(made.url, json={"inputs": ROWS.tolist()}, headers=bearer)
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-EDT-Version"] == "net/1"
    assert np.allclose(answer.json()["outputs"], right(first), rtol=1e-6)
    # Another version takes over under load, without a request that fails.
    stop = False

    def call() -> list[tuple[int, str]]:
        found = []
        with requests.Session() as session:
            while not stop:
                got = session.post(made.url, json={"inputs": ROWS[:1].tolist()}, headers=bearer)
                found.append((got.status_code, got.headers.get("X-EDT-Version", got.text)))
        return found

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            made.update(2)
            until(lambda: made.refresh().view.version == "net/2", limit=300)
            until(lambda: np.array_equal(made.predict(ROWS), right(second)), limit=60)
        finally:
            stop = True
        answered = [each for found in calls for each in found.result()]
    assert {status for status, _ in answered} == {200}
    assert {version for _, version in answered} == {"net/1", "net/2"}
    until(lambda: [job.view.framework for job in client.jobs(state=JobState.RUNNING)] == ["serve"], limit=60)
    with pytest.raises(Conflict, match="served"):
        second.delete()
    made.rollback()
    until(lambda: made.refresh().view.version == "net/1", limit=300)
    assert [(each.number, each.version) for each in made.view.revisions] == [(3, "net/1"), (2, "net/2"), (1, "net/1")]
    assert made.view.revisions[1].outcome == "It answered until revision 3 took over."
    made.revoke_key(key)
    assert requests.post(made.url, json={"inputs": ROWS.tolist()}, headers=bearer).status_code == 401
    made.stop()
    until(lambda: _refused(made), limit=60)
    assert made.refresh().state is DeploymentState.STOPPED
    made.start().wait_ready(300)
    assert np.array_equal(made.predict(ROWS), right(first))
    made.delete()
    until(lambda: not client.jobs(state=JobState.RUNNING), limit=60)
    assert client.deployments() == []


def _refused(made: Deployment) -> bool:
    try:
        made.predict(ROWS)
    except Conflict as stopped:
        return "stopped" in str(stopped)
    except ServerUnreachable:
        return False
    return False


def test_a_replica_that_is_killed_costs_no_request_and_is_replaced(four_slots: Jobs, folder: Path) -> None:
    version = trained(four_slots, folder, 1)
    made = four_slots.client.deploy(version, name="two", replicas=2, public=True).wait_ready(300)
    until(lambda: made.refresh().view.ready == 2, limit=120)
    wanted = right(version, ROWS[:1])
    answered, stop = [], False

    def call() -> None:
        with requests.Session() as session:
            while not stop:
                got = session.post(made.url, json={"inputs": ROWS[:1].tolist()})
                answered.append((got.status_code, got.text))
                assert np.allclose(got.json()["outputs"], wanted, rtol=1e-5)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call) for _ in range(2)]
        try:
            killed = made.job.workers()[0]["pid"]
            os.kill(killed, signal.SIGKILL)
            until(lambda: killed not in [each["pid"] for each in made.job.workers()], limit=60)
            until(lambda: made.refresh().view.ready == 2, limit=120)
        finally:
            stop = True
        for each in calls:
            each.result()
    assert {status for status, _ in answered} == {200}
    assert made.job.state is JobState.RUNNING
    made.delete()


def test_replicas_follow_the_load_and_a_training_gets_its_slots_back(four_slots: Jobs, folder: Path) -> None:
    version = trained(four_slots, folder, 1)
    made = four_slots.client.deploy(
        version, name="idle", replicas="0:3", public=True, release_after=2, idle_after=4
    ).wait_ready(300)
    until(lambda: made.refresh().state is DeploymentState.IDLE, limit=60)
    assert made.view.slots == 0
    begun = time.monotonic()
    assert np.allclose(made.predict(ROWS), right(version), rtol=1e-5), "a request brings it back"
    assert time.monotonic() - begun < 60
    made.scale(1, 1)
    until(lambda: made.refresh().view.replicas == (1, 1), limit=10)
    made.delete()


def test_more_deployments_than_slots_take_turns(four_slots: Jobs, folder: Path) -> None:
    client = four_slots.client
    (folder / "predictor.py").write_text(SLOW)
    version = client.register(folder, "turns")
    made = [client.deploy(version, name=f"turn-{number}", replicas=(0, 1), max_batch=1) for number in range(6)]
    for number in range(2 * len(made)):
        # Each waits for a slot of another one, and none is told that there is no replica.
        assert made[number % len(made)].predict([number]).tolist() == [number]
    for each in made:
        each.delete()


SLOW = """
import time

class Predictor:
    def __init__(self, model_dir, params): ...

    def predict(self, inputs):
        time.sleep(0.1)
        return inputs
"""
LONG = f"""
{DATA}
import time

class Slow(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        time.sleep(0.01)
        return self.rows[index]

def datasets():
    return Slow(data(128, 1)), None

if __name__ == "__main__":
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.2), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(24, 4, 4, validation_freq=0)
"""


def test_a_training_gives_its_slots_to_a_deployment_under_load_and_keeps_its_bits(
    four_slots: Jobs, folder: Path, tmp_path: Path
) -> None:
    client = four_slots.client
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "train.py").write_text(LONG)
    alone = client.submit(tmp_path / "long", max_workers=4, progress=False).wait(300, progress=False)
    (folder / "predictor.py").write_text(SLOW)
    made = client.deploy(
        trained(four_slots, folder, 1), name="busy", replicas=(1, 3), max_batch=1, public=True, release_after=2
    ).wait_ready(300)
    beside = client.submit(tmp_path / "long", max_workers=4, progress=False)
    until(lambda: beside.refresh().view.slots == 3, "the training has what the deployment leaves")
    statuses, stop = set(), False

    def call() -> None:
        with requests.Session() as session:
            while not stop:
                statuses.add(session.post(made.url, json={"inputs": [1]}).status_code)

    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(call) for _ in range(6)]
        try:
            until(lambda: made.refresh().view.ready == 3, "three replicas")
            assert not beside.refresh().state.final, "they were a training's slots"
        finally:
            stop = True
        for each in calls:
            each.result()
    until(lambda: made.refresh().view.ready == 1, "one replica again")
    beside.wait(300, progress=False)
    assert statuses == {200}
    assert max(four_slots.worlds(beside)) == 3
    assert min(four_slots.worlds(beside)) == 1
    assert four_slots.final_hash(beside) == four_slots.final_hash(alone)
    made.delete()


def test_what_cannot_be_served_says_why(four_slots: Jobs, folder: Path) -> None:
    version = trained(four_slots, folder, 1)
    client = four_slots.client
    kept = (four_slots.server.data_dir / "catalogue").glob("*/*/weights/model_epoch_final.pth")
    same = [file for file in kept if sha256(file.read_bytes()).hexdigest() == version.sha256]  # with other code too
    saved = same[0].read_bytes()
    for file in same:
        file.write_bytes(saved + b"x")
    with pytest.raises(Conflict, match="not what was registered"):
        client.deploy(version)
    for file in same:
        file.write_bytes(saved)
    made = client.deploy(version, name="broken")
    job = made.job
    until(lambda: job.refresh().state is JobState.RUNNING, limit=300)
    with pytest.raises(Conflict, match="already"):
        client.deploy(version, name="broken")
    made.stop()
    until(lambda: job.refresh().state.final, limit=60)
    with pytest.raises(JobFailed, match="stopped"):
        made.wait_ready(10)
    made.delete()


WORDS = """
class Predictor:
    def __init__(self, model_dir, params):
        self.word = open(model_dir + "/word.txt").read()

    def predict(self, inputs):
        return [self.word + str(each) for each in inputs]
"""


def test_a_folder_answers_a_newer_one_takes_over_and_back(four_slots: Jobs, folder: Path) -> None:
    client = four_slots.client
    (folder / "predictor.py").write_text(WORDS)
    for word in ("one ", "two "):
        (folder / "word.txt").write_text(word)
        client.register(folder, "words")
    made = client.deploy("words/1").wait_ready(300)
    assert made.predict(["a", "b"]) == ["one a", "one b"]
    with pytest.raises(Conflict, match="served"):
        client.version("words/1").delete()
    made.update(2)
    until(lambda: made.predict(["a"]) == ["two a"], limit=300)
    made.rollback()
    until(lambda: made.predict(["a"]) == ["one a"], limit=300)
    assert [each.version for each in made.refresh().view.revisions] == ["words/1", "words/2", "words/1"]
    made.delete()


KERNEL = """
import os
from redhareapi import Kernel

class K(Kernel):
    def on_task_invoke(self, task_context):
        said = os.environ["WORD"], task_context.get_input_data(), os.environ["CUDA_VISIBLE_DEVICES"]
        task_context.set_output_data("%s %s on [%s]" % said)

if __name__ == "__main__":
    K().run()
"""


def test_a_kernel_of_a_folder_is_asked_with_one_text(four_slots: Jobs, folder: Path) -> None:
    client = four_slots.client
    (folder / "kernel.py").write_text(KERNEL)
    # The second belongs to the slot, whatever a package says.
    variables = [{"name": "WORD", "value": "hello"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]
    (folder / "model.json").write_text(json.dumps({"kernel_path": "kernel.py", "mk_environments": variables}))
    made = client.deploy(client.register(folder, "echo")).wait_ready(300)
    assert made.predict({"a": 1}) == 'hello {"a": 1} on []'
    place = made.url.replace("/predict/", "/dlim/v1/inference/")
    key = made.create_key("shop")
    assert requests.post(place, data="words").status_code == 401
    for header in ({"Authorization": f"Bearer {key}"}, {"X-Auth-Token": key}, {"X-User-Token": key}):
        answer = requests.post(place, data="[words", headers={**header, "Content-Type": "text/csv"})
        assert (answer.status_code, answer.text) == (200, "hello [words on []")
        assert answer.headers["Content-Type"].startswith("text/plain")
    made.delete()


def test_what_a_version_is_exported_to_answers_like_it(four_slots: Jobs, folder: Path, tmp_path: Path) -> None:
    """A folder of MLflow to the bit, an ONNX file but for rounding."""
    client, version = four_slots.client, trained(four_slots, folder, 1)
    for format, differs in (("mlflow", 0), ("onnx", 1e-5)):
        path = version.export(net(), format, tmp_path / "exported")
        made = client.deploy(client.register(path, f"net-{format}"), max_batch=1).wait_ready(300)
        np.testing.assert_allclose(made.predict(ROWS), right(version), rtol=differs, atol=differs)
        with pytest.raises(InvalidRequest, match="5 numbers, expected 6 a row"):
            made.predict(ROWS[:, :5])
        made.delete()
    with pytest.raises(Conflict, match="made of a folder"):
        client.version("net-onnx").export(net())


WIDE = f"""
{DATA}

def datasets():
    return data(64, 1), data(32, 2)

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
FabricModel(model, datasets, nn.functional.cross_entropy, optimizer).train(1, 8, 2)
"""


@pytest.mark.long  # tests/training/serving/test_replica.py has an exact replica, with fewer requests
def test_a_thousand_exact_answers_are_equal_alone_and_under_64_clients(four_slots: Jobs, folder: Path) -> None:
    """Without exact they are not: or the test would show nothing."""
    client = four_slots.client
    (folder / "train.py").write_text(WIDE)
    job = client.submit(folder, max_workers=1, progress=False).wait(300, progress=False)
    version = client.register(job, "wide")
    rows = torch.randn(1000, 6, generator=torch.Generator().manual_seed(4)).tolist()
    for exact in (True, False):
        made = client.deploy(version, name="wide", max_batch=32, exact=exact, public=True).wait_ready(300)
        session = threading.local()

        def ask(row: list[float], at: str = made.url, own: threading.local = session) -> bytes:
            if not hasattr(own, "http"):
                own.http = requests.Session()
            answer = own.http.post(at, json={"inputs": [row]})
            assert answer.status_code == 200, answer.text
            return bytes(answer.content)

        alone = [ask(row) for row in rows]
        with ThreadPoolExecutor(64) as pool:
            together = list(pool.map(ask, rows))
        made.delete()
        assert (together == alone) is exact


JUNK = [b"", b"null", b"-1", b"1e400", b"[]", b"{}", b'""', b"1.5", b"[[", b"9223372036854775808", b'"BYTES"', b"\xff"]


def broken(good: tuple[str, dict[str, str], bytes], seed: int) -> tuple[str, dict[str, str], bytes]:
    """Return a request with some of its bytes replaced, and at times another length of the JSON before its tensors."""
    chance, (route, headers, body) = random.Random(seed), good
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        body = body[:at] + chance.choice(JUNK) + body[at + chance.randrange(10) :]
    if len(headers) > 1 and chance.random() < 0.3:
        headers = {**headers, "Inference-Header-Content-Length": str(chance.randint(-5, 300))}
    return route, headers, body


@pytest.mark.long  # tests/training/serving/test_bad_requests.py has such bodies without HTTP
def test_ten_thousand_broken_bodies_cost_no_replica_and_no_neighbour(four_slots: Jobs, folder: Path) -> None:
    version = trained(four_slots, folder, 1)
    made = four_slots.client.deploy(version, name="broken", public=True).wait_ready(300)
    row, file, kind = ROWS[:1], io.BytesIO(), {"Content-Type": "application/json"}
    np.save(file, row.numpy())
    tensor = {"name": "input", "shape": [1, 6], "datatype": "FP32"}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 24}}]}).encode()
    table = {"dataframe_split": {"columns": [*"abcdef"], "data": row.tolist()}}
    requested = [
        ("/predict/broken", kind, json.dumps({"inputs": row.tolist()}).encode()),
        ("/predict/broken", {"Content-Type": "application/x-npy"}, file.getvalue()),
        ("/invocations/broken", kind, json.dumps(table).encode()),
        ("/v2/models/broken/infer", kind, json.dumps({"inputs": [{**tensor, "data": row.tolist()}]}).encode()),
        (
            "/v2/models/broken/infer",
            {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))},
            head + row.numpy().tobytes(),
        ),
    ]
    address, pids = made.url.removesuffix("/predict/broken"), [each["pid"] for each in made.job.workers()]

    def part(first: int) -> list[tuple[int, str]]:
        found = []
        with requests.Session() as session:
            for number in range(first, 10_000, 8):
                good = requested[number % len(requested)]
                for route, headers, body in (broken(good, number), good):
                    answer = session.post(address + route, data=body, headers=headers)
                    found.append((answer.status_code, answer.text))
        return found

    with ThreadPoolExecutor(8) as pool:
        found = [each for part_of in pool.map(part, range(8)) for each in part_of]
    whole, refused = found[1::2], found[::2]
    assert [each for each in whole if each[0] != 200] == []
    assert [each for each in refused if each[0] not in (200, 400, 413, 415)] == []
    assert sum(status == 400 for status, _ in refused) > 5000, "most bodies are broken indeed"
    assert [each["pid"] for each in made.job.workers()] == pids
    made.delete()


TRITON = """
import sys
import numpy as np
import tritonclient.http as triton

client, headers = triton.InferenceServerClient(sys.argv[1]), {"Authorization": f"Bearer {sys.argv[2]}"}
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("net", headers=headers)
metadata = client.get_model_metadata("net", headers=headers)
(given,), (wanted,) = metadata["inputs"], metadata["outputs"]
assert (given["datatype"], given["shape"], wanted["shape"]) == ("FP32", [-1, 6], [-1, 2])
rows = np.load(sys.argv[3])
for binary in (True, False):
    asked = triton.InferInput(given["name"], list(rows.shape), "FP32")
    asked.set_data_from_numpy(rows, binary_data=binary)
    outputs = [triton.InferRequestedOutput(wanted["name"], binary_data=binary)]
    # It writes into the headers that it is given.
    answer = client.infer("net", [asked], outputs=outputs, headers=dict(headers))
    np.save(f"{sys.argv[4]}-{binary}.npy", answer.as_numpy(wanted["name"]))
short = triton.InferInput(given["name"], [1, 5], "FP32").set_data_from_numpy(rows[:1, :5])
try:
    client.infer("net", [short], headers=dict(headers))
except triton.InferenceServerException as wrong:
    assert "6" in str(wrong), wrong
else:
    raise SystemExit("five numbers in place of six were taken")
"""


@pytest.mark.long  # tests/training/serving/test_answers.py has the same requests, written by hand
def test_tritonclient_speaks_with_a_deployment(four_slots: Jobs, folder: Path, tmp_path: Path) -> None:
    uv = [sys.executable, "-m", "uv", "run", "--no-project", "--with", "tritonclient[http]==2.67.0", "python"]
    if subprocess.run([*uv, "-c", "import tritonclient.http"], capture_output=True).returncode:
        pytest.skip("tritonclient cannot be installed here")
    version = trained(four_slots, folder, 1)
    made = four_slots.client.deploy(version, max_batch=1, exact=True).wait_ready(300)
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    (tmp_path / "ask.py").write_text(TRITON)
    host = made.url.removeprefix("http://").partition("/")[0]
    words = [host, made.create_key("triton"), str(tmp_path / "rows.npy"), str(tmp_path / "answer")]
    ran = subprocess.run([*uv, str(tmp_path / "ask.py"), *words], capture_output=True, text=True)
    made.delete()  # its slot is wanted by the tests that follow, whatever comes out here
    assert ran.returncode == 0, ran.stderr
    for binary in (True, False):
        assert np.array_equal(np.load(tmp_path / f"answer-{binary}.npy"), right(version)), binary
