"""The calls of the 1.2.x notebooks, written afresh: a training watched while it runs, its log as a table, its zip.

They use Basic with every call, two base addresses, and `verify=False` on all but the download.
"""

from __future__ import annotations

import io
import time
import zipfile

import pandas as pd
import pytest
import requests

from tests.conformance.conftest import LIMIT, WmlaServer, modeldir

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

HEADERS = {"Accept": "application/json"}
# Built like theirs, with a line's continuation in the middle: blanks in runs, and one at the end.
ARGS = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=pytorch-mnist "
    "                  --edt-options maxWorkers=2                  --model-main train.py "
    "                  --model-dir mnist-edt                  --debug-level debug  "
    "                --epochs 400 --pause 0.005 "
)


class Notebook:
    """What the first cells set up."""

    def __init__(self, server: WmlaServer) -> None:
        self.dl_rest_url, self.sc_rest_url = server.dli, server.conductor
        self.req = requests.Session()
        self.req.auth = server.basic
        answer = self.req.get(f"{self.sc_rest_url}/auth/logon", headers=HEADERS, verify=False)
        assert answer.ok

    def submit(self, args: str) -> dict[str, str]:
        answer = self.req.post(
            f"{self.dl_rest_url}/execs?sigName=wmla-sig&args={args}",
            files={"file": ("mnist-edt.modelDir.tar", modeldir("mnist-edt", top="pytorch_edt"))},
            headers=HEADERS,
            verify=False,
        )
        assert answer.ok, answer.text
        return dict(answer.json())

    def get(self, path: str, accept: str = "application/json") -> requests.Response:
        return self.req.get(self.dl_rest_url + path, headers={"Accept": accept}, verify=False)

    def running(self, sig_id: str, driver_id: str) -> dict[str, object] | None:
        answer = self.req.get(
            f"{self.sc_rest_url}/instances/{sig_id}/applications?state=RUNNING", headers=HEADERS, verify=False
        )
        applications = answer.json()
        return next((each for each in applications if each["driver"]["id"] == driver_id), None)

    def log(self, sig_id: str, driver_id: str, executor: str = "", kind: str = "stdout") -> str:
        middle = f"{driver_id}/{executor}" if executor else driver_id
        answer = self.req.get(
            f"{self.sc_rest_url}/instances/{sig_id}/applications/{middle}/logs/{kind}/download",
            headers={"Accept": "application/octet-stream"},
            verify=False,
        )
        assert answer.ok, answer.text
        return answer.text


def as_table(log: str) -> pd.DataFrame:
    """The log as they read it: colons become commas, five columns are kept."""
    frame = pd.read_csv(
        io.StringIO(log.replace(":", ",")),
        header=None,
        usecols=[4, 6, 8, 10, 12],
        names=None,
    )
    frame.columns = ["timestamp", "global_steps", "iteration", "loss", "accuracy"]
    frame["timestamp"] = pd.to_datetime(pd.to_numeric(frame["timestamp"]), unit="ms")
    return frame


def test_the_tutorial_from_its_logon_to_its_zip(server: WmlaServer, tmp_path):
    book = Notebook(server)
    (server.local.root / "data-fs" / "pytorch-mnist").mkdir(exist_ok=True)
    started = book.submit(ARGS)
    exec_id, sig_id, driver_id = started["id"], started["sigId"], started["submissionId"]

    deadline = time.monotonic() + LIMIT
    application = None
    while time.monotonic() < deadline and not (application and len(application["executors"]) == 2):
        application = book.running(sig_id, driver_id)
        state = book.get(f"/execs/{exec_id}").json()["state"]
        assert state in ("SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING")
        time.sleep(0.05)
    assert application is not None, book.get(f"/execs/{exec_id}").text
    assert application["driver"]["state"] == "RUNNING"
    assert isinstance(application["apprunduration"], float)
    assert application["gpumemused"]["total"] == 0
    assert application["gpudevutil"]["total"] == 0
    executors = [each["id"] for each in application["executors"]]
    assert (len(executors), application["gpuslots"]) == (2, 2)

    # One row of a table, whatever the state.
    row = pd.DataFrame(book.get(f"/execs/{exec_id}").json(), index=[0])
    assert len(row) == 1
    assert row.loc[0, "state"] == "RUNNING"

    # The log as it is while the training goes on: every line is one of the table's.
    table = pd.DataFrame()
    while time.monotonic() < deadline and len(table) < 10:
        log = book.get(f"/execs/{exec_id}/log").json()
        table = as_table(log) if log.strip() else table
    trained = table.dropna()  # a Test line has neither steps nor a loss in these columns
    assert list(trained["global_steps"][:3]) == [1, 2, 3]
    assert (trained["timestamp"] > pd.Timestamp("2020-01-01")).all()
    assert trained["loss"].between(0, 10).all()

    assert "START TRAINING" in book.log(sig_id, driver_id)
    assert "START TRAINING" in book.log(sig_id, driver_id, executors[-1])
    assert "batches :" in "".join(book.log(sig_id, driver_id, each) for each in executors)
    assert isinstance(book.log(sig_id, driver_id, executors[0], "stderr"), str)

    assert book.req.post(f"{book.dl_rest_url}/execs/{exec_id}/stop", headers=HEADERS, verify=False).ok
    server.wait(exec_id, "KILLED")
    assert book.running(sig_id, driver_id) is None

    # The download, with a bar that wants the true size.
    answer = book.req.get(
        f"{book.dl_rest_url}/execs/{exec_id}/result", headers={"Accept": "application/octet-stream"}, stream=True
    )
    disposition = answer.headers["Content-Disposition"]
    size = int(disposition.split("size=")[1])
    saved = tmp_path / "result.zip"
    saved.write_bytes(answer.content)
    assert saved.stat().st_size == size
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    # The folder kept its own name, and the code is where WMLA puts it.
    assert "_submitted_code/pytorch_edt/train.py" in names
    assert any(name.startswith(f"log/{driver_id}.") and name.endswith("/stdout") for name in names)


def test_a_session_that_only_logged_on_needs_no_password_any_more(server: WmlaServer):
    """One of IBM's scripts logs on with Basic and then shows only the cookies, at the other port of the same host."""
    book = requests.Session()
    book.get(f"{server.conductor}/auth/logon", auth=server.basic, verify=False).raise_for_status()
    answer = book.post(
        f"{server.dli}/execs",
        params={"sigName": "wmla-sig", "args": "--exec-start PyTorch --model-main a.py"},
        files={"file": ("a.py", b"print('here')")},
        verify=False,
    )
    assert answer.ok, answer.text
    exec_id = answer.json()["id"]
    server.wait(exec_id, "FINISHED")
    log = book.get(f"{server.dli}/execs/{exec_id}/log", verify=False).json()
    assert log == "here\n"
