"""What WMLA's users get wrong: a status and a line of text that their programs print, nothing left, no 500."""

from __future__ import annotations

import pytest
import requests

from tests.conformance.conftest import WmlaServer, modeldir
from tests.packages import packed

SCRIPT = {"train.py": b"print('never')"}
GOOD = modeldir("model", SCRIPT)
ARGS = "--exec-start PyTorch --model-main train.py --model-dir model"


def broken() -> bytes:
    return GOOD[: len(GOOD) // 2]


def climbing() -> bytes:
    return packed({"../../outside.py": b"x"})


def post(server: WmlaServer, args: str = ARGS, body: bytes = GOOD, *, sig: str = "", **more: object):
    params = {"args": args, **({"sigName": sig} if sig else {})}
    files = more.pop("files", {"file": ("model.modelDir.tar", body)})
    return requests.post(f"{server.dli}/execs", params=params, files=files, auth=server.basic, **more)


CASES = {
    "an unknown framework": (
        lambda s: post(s, ARGS.replace("PyTorch", "caffe9")),
        400,
        "There is no framework 'caffe9'",
    ),
    "an unknown instance group": (lambda s: post(s, sig="nobodys"), 400, "There is no instance group 'nobodys'"),
    "an unknown group in the args": (lambda s: post(s, ARGS + " --ig nobodys"), 400, "There is no instance group"),
    "no args": (lambda s: post(s, ""), 400, "The request has no args"),
    "no framework": (lambda s: post(s, "--model-main train.py"), 400, "--exec-start"),
    "no script": (lambda s: post(s, "--exec-start PyTorch --epochs 1"), 400, "--model-main"),
    "an option without its value": (lambda s: post(s, ARGS + " --numWorker"), 400, "--numWorker"),
    "no number": (lambda s: post(s, ARGS + " --numWorker two"), 400, "--numWorker"),
    "more workers than it can ever have": (
        lambda s: post(s, "--exec-start distPyTorch --model-main train.py --model-dir model --numWorker 99"),
        400,
        "99",
    ),
    "a number of nodes that torchrun would not take": (
        lambda s: post(s, ARGS.replace("PyTorch", "torchrun") + " --nnodes=4:1"),
        400,
        "--nnodes=4:1 is no number of nodes",
    ),
    "an option that torchrun does not have": (
        lambda s: post(s, "--exec-start torchrun --user-cmd -- torchrun --unheard-of train.py"),
        400,
        "--unheard-of",
    ),
    "more nodes than it can ever have": (
        lambda s: post(s, ARGS.replace("PyTorch", "torchrun") + " --nnodes=99"),
        400,
        "99",
    ),
    "a script that is not in the package": (lambda s: post(s, ARGS.replace("train.py", "other.py")), 400, "other.py"),
    "a broken tar": (lambda s: post(s, body=broken()), 400, "not a readable tar"),
    "no tar at all": (lambda s: post(s, body=b"this is no archive"), 400, "not a readable tar"),
    "an empty file": (lambda s: post(s, body=b""), 400, "not a readable tar"),
    "a broken tar without a name": (
        lambda s: post(s, "--exec-start PyTorch --model-main train.py", files={"file": (None, broken())}),
        400,
        "not a readable tar",
    ),
    "a tar that climbs out": (lambda s: post(s, body=climbing()), 400, "leads out of the package"),
    "no file": (lambda s: post(s, files={"data": (None, "{}")}), 400, "brings no file"),
    "no multipart": (
        lambda s: requests.post(f"{s.dli}/execs", params={"args": ARGS}, data=b"x", auth=s.basic),
        400,
        "of no type",
    ),
    "a form that is no JSON": (
        lambda s: post(s, files={"file": ("m.tar", GOOD), "data": (None, "{")}),
        400,
        "data is not JSON",
    ),
    "two archives": (
        lambda s: post(s, files=[("file", ("a.tar", GOOD)), ("file", ("b.tar", GOOD))]),
        400,
        "2 archives",
    ),
    "an exec that is not there": (lambda s: get(s, "/execs/nobodys-exec"), 404, "There is no exec nobodys-exec"),
    "its log": (lambda s: get(s, "/execs/nobodys-exec/log"), 404, "nobodys-exec"),
    "its result": (lambda s: get(s, "/execs/nobodys-exec/result"), 404, "nobodys-exec"),
    "stopping it": (lambda s: ask(s, "POST", "/execs/nobodys-exec/stop"), 404, "nobodys-exec"),
    "stopping its application": (
        lambda s: ask(s, "PUT", "/scheduler/applications/nobodys-exec/stop"),
        404,
        "nobodys-exec",
    ),
    "deleting it": (lambda s: ask(s, "DELETE", "/execs/nobodys-exec"), 404, "nobodys-exec"),
    "a plan that is not there": (lambda s: get(s, "/resplans/resplan/none"), 404, "no resource plan 'none'"),
    "the root of all plans": (lambda s: ask(s, "DELETE", "/resplans/resplan/jupyter-edt"), 404, "no instance group"),
    "a limit that is no number": (lambda s: get(s, "/execs?limit=ten"), 400, "limit"),
    "a type that is missing": (lambda s: get(s, "/scheduler/kubernetesobjects"), 400, "type"),
    "an executor's number": (
        lambda s: get(s, "/scheduler/applications/x/executor/one/logs/stdout"),
        404,
        "There is no",
    ),
    "a wrong verb": (lambda s: ask(s, "PUT", "/execs"), 405, "Method Not Allowed"),
    "a path that nobody knows": (lambda s: get(s, "/nothing/here"), 404, "/nothing/here"),
}


def ask(server: WmlaServer, verb: str, path: str):
    return requests.request(verb, server.dli + path, auth=server.basic)


def get(server: WmlaServer, path: str):
    return ask(server, "GET", path)


@pytest.mark.parametrize("case", CASES)
def test_is_answered_with_a_line_of_text(http: WmlaServer, case: str):
    send, status, text = CASES[case]
    answer = send(http)
    assert answer.status_code == status, answer.text
    assert answer.text.startswith(f"Error {status}: ")
    assert answer.text.endswith("\n")
    assert text in answer.text
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "Traceback" not in answer.text


def test_nothing_of_a_refused_request_stays(http: WmlaServer):
    for send, _, _ in CASES.values():
        send(http)
    root = http.local.data_dir
    assert list((root / "uploads").iterdir()) == []
    assert get(http, "/execs").json() == []
    assert [path for path in (root / "results").glob("*/batchworkdir/*")] == []


def test_a_connection_is_usable_after_a_refusal(http: WmlaServer):
    """A notebook keeps one session: the answer after an upload that was refused must come like any other."""
    with requests.Session() as client:
        for _ in range(3):
            refused = client.post(f"{http.dli}/execs", files={"file": ("m.tar", GOOD * 2000)}, auth=("x", "wrong"))
            assert refused.status_code == 401
            assert client.get(f"{http.dli}/execs", auth=http.basic).status_code == 200


def test_stopping_what_has_ended(http: WmlaServer):
    exec_id = post(http, "--exec-start PyTorch --model-main train.py --model-dir model").json()["id"]
    http.wait(exec_id, "FINISHED")
    for verb, path in (("POST", f"/execs/{exec_id}/stop"), ("PUT", f"/scheduler/applications/{exec_id}/stop")):
        answer = ask(http, verb, path)
        assert (answer.status_code, answer.text.startswith("Error 400: ")) == (400, True)
        assert "it cannot be stopped any more" in answer.text
    assert get(http, f"/execs/{exec_id}/log?logType=everything").status_code == 400
    assert get(http, f"/scheduler/applications/{exec_id}/executor/7/logs/stdout").status_code == 404
    assert get(http, f"/scheduler/applications/{exec_id}/driver/logs/secrets").status_code == 400
    assert ask(http, "DELETE", f"/execs/{exec_id}").status_code == 200


def test_a_script_that_fails_is_in_error(http: WmlaServer):
    """Not FAILED: some of these clients would wait for another word for ever."""
    exec_id = post(http, body=modeldir("model", {"train.py": b"raise SystemExit('the disk is full')"})).json()["id"]
    http.wait(exec_id, "ERROR")
    (seen,) = get(http, f"/scheduler/engine/applications/{exec_id}").json()
    assert seen["state"] == "ERROR"
    log = requests.get(
        f"{http.dli}/execs/{exec_id}/log?logType=errlog", headers={"Accept": "text/plain"}, auth=http.basic
    )
    assert "the disk is full" in log.text
    assert ask(http, "DELETE", "/execs").status_code == 200
