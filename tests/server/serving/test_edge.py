"""Requests over real HTTP, through a real edge, to replicas on its sockets."""

import contextlib
import json
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from edt_sdk.schemas.serving.edge_file import EdgeDeployment
from edt_sdk.schemas.serving.replica_channel import LENGTHS, Answer, Answers, ReplicaReady, Signature, Tensor, frame
from tests.server.serving.conftest import key
from tests.server.serving.replicas import Die, Said
from tests.waiting import until

JSON = "application/json"


def error(answer):
    assert answer.headers["content-type"] == JSON
    return answer.json()["error"]


def test_an_answer_comes_back_as_the_replica_gave_it(edge, start):
    seen = []

    def act(request, body):
        seen.append(request)
        return Said(body[::-1], 201, "application/octet-stream", header_length=2)

    target = edge.target()
    edge.deploy(target)
    start(target, 7, act=act)
    answer = edge.post("/v2/models/digits/infer", b"{}abc", X_Request_Id="mine", Inference_Header_Content_Length="2")
    assert (answer.status_code, answer.content) == (201, b"cba}{")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["inference-header-content-length"] == "2"
    assert answer.headers["x-edt-version"] == "digits/3"
    assert answer.headers["x-edt-replica"] == "7"
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["server-timing"].startswith("queue;dur=")
    for path in ("/v2/models/digits/versions/3/infer", "/predict/digits", "/invocations/digits"):
        assert edge.post(path, b"[1]", Content_Type=JSON).content == b"]1["
    assert [(each.form, each.content_type, each.header_length, each.size) for each in seen] == [
        ("v2", "", 2, 5),
        ("v2", JSON, None, 3),
        ("simple", JSON, None, 3),
        ("invocations", JSON, None, 3),
    ]
    assert all(29.0 < each.within <= 30.0 for each in seen)
    made = {edge.post().headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert edge.post(X_Request_Id="two words").headers["x-request-id"] != "two words"


def test_an_error_of_the_replica_is_passed_on(edge, start):
    target = edge.target()
    edge.deploy(target)
    start(target, act=lambda request, body: Said(b'{"error": "ValueError: no"}', 500))
    answer = edge.post()
    assert (answer.status_code, error(answer)) == (500, "ValueError: no")


def test_what_cannot_be_answered_is_refused_with_a_sentence(edge, start):
    target = edge.target()
    stopped = EdgeDeployment(name="stopped", public=True)
    edge.tell(EdgeDeployment(name="digits", public=True, targets=(target,), max_body=100), stopped)
    start(target)
    assert edge.post(data=b"x" * 100).status_code == 200
    for path, data, headers, status, words in [
        ("/predict/none", b"1", {}, 404, "no deployment 'none'"),
        (
            "/v2/models/digits/versions/4/infer",
            b"1",
            {},
            404,
            "Version 4 of digits is not deployed. These versions are: 3.",
        ),
        ("/predict/stopped", b"1", {}, 409, "stopped is stopped"),
        ("/predict/digits", b"x" * 101, {}, 413, "at most 100 bytes"),
        ("/predict/digits", iter([b"x" * 60, b"y" * 60]), {}, 413, "at most 100 bytes"),
        ("/invocations/digits", b"1", {"Content_Type": "text/csv"}, 415, "application/json, not text/csv"),
        ("/predict/digits", b"1", {"Content_Type": "text/html"}, 415, "image/png"),
        ("/predict/digits", b"1", {"Content_Encoding": "gzip"}, 415, "Content-Encoding"),
        ("/v2/models/digits/infer", b"{}", {"Inference_Header_Content_Length": "3"}, 400, "those of the body, 2"),
        ("/v2/models/digits/infer", b"{}", {"Inference_Header_Content_Length": "-1"}, 400, "those of the body, 2"),
        ("/nowhere", b"1", {}, 404, "Not Found"),
    ]:
        answer = edge.post(path, data, **headers)
        assert (path, answer.status_code) == (path, status)
        assert words in error(answer)
    assert edge.get("/predict/digits").status_code == 405
    assert requests.options(f"{edge.url}/predict/digits", timeout=60).status_code == 405
    assert edge.get("/predict/digits").json() == {"error": "Method Not Allowed."}


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(edge, start):
    target = edge.target()
    edge.deploy(target, max_body=100)
    head = b"POST /predict/digits HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", edge.address.port)) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_keys(edge, start):
    (good, good_key), (old, old_key), (other, other_key) = key("shop"), key("old", expires=1.0), key("other")
    mine, its = edge.target("mine"), edge.target("its")
    deployments = (
        EdgeDeployment(name="mine", targets=(mine,), keys=(good_key, old_key)),
        EdgeDeployment(name="its", targets=(its,), keys=(other_key,)),
        EdgeDeployment(name="open", targets=(its,), public=True),
    )
    edge.tell(*deployments)
    start(mine)
    start(its)
    edge.connected(name="mine")

    def statuses(path, method=requests.post):
        sent = {
            "none": {},
            "bearer": {"Authorization": f"Bearer {good}"},
            "auth token": {"X-Auth-Token": good},
            "user token": {"X-User-Token": good},
            "expired": {"Authorization": f"Bearer {old}"},
            "other deployment": {"Authorization": f"Bearer {other}"},
            "unknown": {"X-Auth-Token": f"{good}x"},
            "not ASCII": {"X-Auth-Token": "ä".encode()},
            "server": {"X-EDT-Inner": edge.inner},
            "no server": {"X-EDT-Inner": "guess"},
        }
        return {
            name: method(f"{edge.url}{path}", data=b"1", headers=each, timeout=60).status_code
            for name, each in sent.items()
        }

    expected = {"none": 401, "bearer": 200, "auth token": 200, "user token": 200, "expired": 401}
    expected |= {"other deployment": 403, "unknown": 401, "not ASCII": 401, "server": 200, "no server": 401}
    for path in ("/predict/mine", "/invocations/mine", "/v2/models/mine/infer", "/v2/models/mine/versions/3/infer"):
        assert statuses(path) == expected
    for path in ("/v2/models/mine", "/v2/models/mine/ready", "/v2/models/mine/versions/3/ready"):
        assert statuses(path, requests.get) == expected
    only_server = {name: 200 if name == "server" else 401 for name in expected}
    assert statuses("/edt/state", requests.get) == statuses("/metrics", requests.get) == only_server
    assert set(statuses("/v2/health/live", requests.get).values()) == {200}
    assert statuses("/predict/open") == {name: 401 if name == "no server" else 200 for name in expected}
    assert requests.post(f"{edge.url}/predict/mine", timeout=60).headers["www-authenticate"] == "Bearer"
    # Revoked.
    edge.tell(EdgeDeployment(name="mine", targets=(mine,), keys=(old_key,)))
    assert statuses("/predict/mine")["bearer"] == 401
    log = edge.log.read_text()
    assert not [each for each in (good, old, other, edge.inner) if each in log]


def test_questions_of_v2(edge, start):
    target = edge.target(reason="No slot is free.")
    edge.deploy(target)
    answer = requests.get(f"{edge.url}/v2", timeout=60).json()
    assert answer["name"] == "jupyter-edt"
    assert "binary_tensor_data" in answer["extensions"]
    assert edge.get("/v2/health/live").json() == {"live": True}
    assert edge.get("/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/digits", "/v2/models/digits/ready"):
        answer = edge.get(path)
        assert (answer.status_code, error(answer)) == (503, "No slot is free.")
    signature = Signature((Tensor("x", "FP32", (-1, 784)),), (Tensor("y", "INT64", (-1,)),))
    replica = start(target, signature=signature)
    edge.connected()
    expected = {
        "name": "digits",
        "versions": ["3"],
        "platform": "jupyter-edt",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 784]}],
        "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1]}],
    }
    assert edge.get("/v2/models/digits").json() == edge.get("/v2/models/digits/versions/3").json() == expected
    assert edge.get("/v2/models/digits/ready").json() == {"name": "digits", "ready": True}
    assert edge.get("/v2/models/digits/versions/4/ready").status_code == 404
    replica.close()
    edge.connected(0)
    assert edge.get("/v2/models/digits").json() == expected
    assert edge.get("/v2/models/digits/ready").status_code == 503


def test_many_callers_share_batches_and_each_gets_its_own_answer(edge, start):
    target = edge.target()
    edge.deploy(target)
    replicas = [start(target, each, most=4) for each in range(2)]
    edge.connected(2)
    bodies = [f"[{each}]".encode() for each in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: edge.post(data=body), bodies))
    assert [each.content for each in answers] == bodies
    batches = [len(batch) for each in replicas for batch in each.batches]
    assert sum(batches) == 200
    assert max(batches) <= 4
    counters = edge.counters()
    assert (counters.requests, counters.rows, counters.batches) == ({200: 200}, 200, len(batches))
    assert counters.busy > 0
    assert counters.latency_sum >= counters.busy / 4
    assert list(counters.latency) == sorted(counters.latency)
    assert max(counters.latency) == 30.0
    assert counters.latency[30.0] == 200
    assert (counters.queued, counters.waited, counters.working, counters.replicas) == (0, 0.0, 0, 2)


def test_what_waits_is_counted_and_shown_to_prometheus(edge, start):
    go = threading.Event()
    target = edge.target(version='di"gits/3')
    edge.deploy(target)
    start(target, most=1, act=lambda request, body: go.wait(60) and body)
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(edge.post) for _ in range(3)]
        until(lambda: edge.counters().queued == 2, "two that wait")
        counters = edge.counters()
        assert (counters.working, counters.requests) == (1, {})
        assert counters.waited > 0
        text = edge.get("/metrics").text
        labels = 'deployment="digits",revision="1",version="di\\"gits/3"'
        assert f"edt_serving_queued{{{labels}}} 2\n" in text
        go.set()
        assert [each.result().status_code for each in answers] == [200] * 3
    text = edge.get("/metrics").text
    assert f'edt_serving_requests_total{{{labels},status="200"}} 3\n' in text
    assert f'edt_serving_latency_seconds_bucket{{{labels},le="+Inf"}} 3\n' in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.rpartition("} ")[2].replace(".", "").replace("e-", "").isdigit() for line in lines)


def test_a_request_goes_to_another_replica_once(edge, start):
    target = edge.target()
    edge.deploy(target)

    def die(request, body):
        raise Die

    first = start(target, 0, act=die, again=False)
    edge.connected()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(edge.post, data=b"[1]")
        until(lambda: first.deaths, "the death")
        start(target, 1)
        assert (answer.result().content, answer.result().headers["x-edt-replica"]) == (b"[1]", "1")


def test_a_request_that_kills_two_replicas_is_refused_from_then_on(edge, start):
    target = edge.target()
    edge.deploy(target)
    replicas = [start(target, each) for each in range(3)]
    edge.connected(3)
    for _ in range(3):
        answer = edge.post(data=b"die")
        assert answer.status_code == 500
        assert error(answer).startswith("This request killed two replicas.")
    assert sum(each.deaths for each in replicas) == 2
    assert edge.post(data=b"[2]").content == b"[2]"


def test_a_request_whose_caller_has_gone_is_dropped(edge, start):
    target = edge.target()
    edge.deploy(target)
    with socket.create_connection(("127.0.0.1", edge.address.port)) as connection:
        connection.sendall(b"POST /predict/digits HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ngone")
        until(lambda: edge.counters().queued == 1, "the request")
    until(lambda: edge.counters().queued == 0, "its end")
    replica = start(target)
    assert edge.post(data=b"[1]").content == b"[1]"
    assert replica.batches == [[b"[1]"]]
    assert edge.counters().requests == {499: 1, 200: 1}


def test_the_deadline_and_patience_and_the_queue(edge, start):
    go = threading.Event()
    slow = edge.target("slow", deadline=0.3)
    none = edge.target("none", reason="4 of 4 slots are held by digits.")
    full = edge.target("full", deadline=60.0)
    edge.tell(
        EdgeDeployment(name="slow", targets=(slow,), public=True),
        EdgeDeployment(name="none", targets=(none,), public=True, patience=0.2),
        EdgeDeployment(name="full", targets=(full,), public=True, max_queue=1, patience=60.0),
    )
    start(slow, act=lambda request, body: go.wait(60) and body)
    edge.connected(name="slow")
    answer = edge.post("/predict/slow")
    assert (answer.status_code, error(answer)) == (504, "No answer within 0.3 s.")
    answer = edge.post("/predict/none")
    assert (answer.status_code, error(answer)) == (503, "4 of 4 slots are held by digits.")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(edge.post, "/predict/full")
        until(lambda: edge.counters("full").queued == 1, "the queue")
        answer = edge.post("/predict/full")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        go.set()
        start(full)
        assert waits.result().status_code == 200
    # The replica whose answer came too late is free again.
    until(lambda: edge.counters("slow").working == 0, "the late answer")
    assert edge.post("/predict/slow").status_code == 200


def test_a_leaving_replica_answers_what_it_has_and_gets_nothing_more(edge, start):
    target = edge.target()
    edge.deploy(target)
    go = threading.Event()
    first = start(target, 0, most=1, act=lambda request, body: go.wait(60) and body)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(edge.post, data=b"[0]")]
        until(lambda: first.batches, "the batch")
        answers.append(pool.submit(edge.post, data=b"[1]"))
        until(lambda: edge.counters().queued == 1, "the next one")
        first.leave()
        go.set()
        assert answers[0].result().headers["x-edt-replica"] == "0"
        start(target, 1)
        assert answers[1].result().headers["x-edt-replica"] == "1"
    assert first.batches == [[b"[0]"]]


def test_replicas_that_stop_reading_just_before_a_batch_comes_have_not_died_of_it(edge, start):
    target = edge.target()
    edge.deploy(target)
    until(lambda: os.path.exists(target.socket), "the socket")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            leaving = stack.enter_context(socket.socket(socket.AF_UNIX))
            leaving.connect(target.socket)
            leaving.sendall(frame(ReplicaReady(0, 0, 1)))
            leaving.shutdown(socket.SHUT_RD)
        edge.connected(3)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(edge.post, data=b"[1]")
            edge.connected(0)
            start(target)
            assert answer.result().content == b"[1]"


@pytest.mark.parametrize(
    "sent",
    [
        frame(Answers((Answer(10**6, 200, JSON, None, 1),), 1, 0.1), [b"1"]),
        frame(Answers((), 0, 0.1)),
        frame(ReplicaReady(0, 0, 1)),
        LENGTHS.pack(3, 0) + b"abc",
        LENGTHS.pack(2**31, 0),
        frame(Answers((Answer(1, 200, JSON, None, 5),), 1, 0.1), [b"1"]),
        frame(Answers((Answer(1, 200, "text/plain\r\nX-Bad: 1", None, 1),), 1, 0.1), [b"1"]),
        frame(Answers((Answer(1, 99, JSON, None, 1),), 1, 0.1), [b"1"]),
        frame(Answers((Answer(1, 200, JSON, 2, 1),), 1, 0.1), [b"1"]),
    ],
    ids=[
        "unknown id",
        "no answer",
        "ready twice",
        "no message",
        "too long",
        "short body",
        "header",
        "status",
        "length",
    ],
)
def test_nonsense_from_a_replica_is_its_death(edge, start, sent):
    target = edge.target()
    edge.deploy(target)
    replica = start(target)
    edge.connected()
    replica.frames.append(sent)
    # It connects again, and answers the request that it has had before.
    assert edge.post(data=b"[1]").content == b"[1]"
    assert (replica.batches, replica.connections) == ([[b"[1]"], [b"[1]"]], 2)


def test_other_accounts_are_refused(edge, start):
    strange, own = edge.target("strange", owner=(os.getuid() + 1, os.getgid())), edge.target("own")
    edge.tell(EdgeDeployment(name="a", targets=(strange,)), EdgeDeployment(name="b", targets=(own,)))
    until(lambda: os.path.exists(own.socket), "the sockets")
    assert os.stat(own.socket).st_mode & 0o777 == 0o600
    assert os.stat(strange.socket).st_mode & 0o777 == 0o660
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(strange.socket)
        connection.settimeout(60)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(frame(ReplicaReady(0, 0, 1)))
            assert connection.recv(1) == b""
    start(own)
    edge.connected(name="own")
    assert edge.counters("strange").replicas == 0


def test_a_socket_that_was_removed_or_left_by_another_edge_is_made_again(edge, start):
    target = edge.target("again")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(target.socket)
    edge.tell(EdgeDeployment(name="digits", targets=(target,), public=True))
    first = start(target, again=False)
    edge.connected(name="again")
    Path(target.socket).unlink()
    first.close()
    start(target)
    edge.connected(name="again")
    assert edge.post().status_code == 200
    edge.tell()
    until(lambda: not Path(target.socket).exists(), "the socket to go")


def test_a_broken_file_leaves_what_was_known(edge, start):
    target = edge.target()
    edge.deploy(target)
    start(target)
    file = edge.folder / "edge.json"
    good = file.read_bytes()
    file.write_bytes(good[:-5])
    until(lambda: "edge.json cannot be read" in edge.log.read_text(), "the line in the log")
    assert edge.post().status_code == 200
    file.write_bytes(good)
    edge.deploy(target, public=False)
    assert edge.post().status_code == 401
    assert edge.log.read_text().count("edge.json cannot be read") == 1


def test_a_roll_from_one_target_to_the_next_under_load_fails_no_request(edge, start):
    targets = [edge.target(f"roll-{number}", version=f"digits/{number}") for number in range(4)]
    edge.deploy(targets[0], max_queue=100)
    replicas = [start(targets[0], most=3)]
    over, answers = threading.Event(), []

    def call(number):
        session = requests.Session()
        while not over.is_set():
            body = f"[{number}, {len(answers)}]".encode()
            answer = session.post(f"{edge.url}/predict/digits", data=body, timeout=60)
            answers.append((answer.status_code, answer.content == body, answer.headers.get("x-edt-version")))
        session.close()

    def answered(version):
        begun = len(answers)
        until(lambda: len(answers) > begun + 20 and answers[-1][2] == version, f"answers of {version}")

    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(call, number) for number in range(6)]
        try:
            answered("digits/0")
            for number in (1, 2, 3):
                # The new one has no replica yet when it takes over, and the old one's goes at the same time.
                edge.deploy(targets[number], max_queue=100)
                replicas.append(start(targets[number], most=3))
                answered(f"digits/{number}")
                replicas[-2].close()
        finally:
            over.set()
        for each in calls:
            each.result()
    assert Counter(each[:2] for each in answers) == {(200, True): len(answers)}
    assert {each[2] for each in answers} == {each.version for each in targets}


def test_a_stopped_deployment_refuses_what_waits_and_answers_what_is_taken(edge, start):
    go = threading.Event()
    target = edge.target()
    edge.deploy(target)
    replica = start(target, most=1, act=lambda request, body: go.wait(60) and body)
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(edge.post)
        until(lambda: replica.batches, "the batch")
        waits = pool.submit(edge.post)
        until(lambda: edge.counters().queued == 1, "the next one")
        edge.deploy()
        assert (waits.result().status_code, error(waits.result())) == (409, "digits is stopped.")
        assert edge.counters().working == 1
        go.set()
        assert taken.result().status_code == 200
    until(lambda: edge.counters() is None, "the end of the target")


def test_a_caller_stays_on_one_side_of_a_canary(edge, start):
    keys = [key(f"k{each}") for each in range(150)]
    old, new = edge.target("old", share=80), edge.target("new", version="digits/4", share=20)

    def sides():
        edge.deploy(old, new, public=False, keys=tuple(each for _, each in keys))
        with ThreadPoolExecutor(4) as pool:
            return list(
                pool.map(lambda each: edge.post(Authorization=f"Bearer {each[0]}").headers["x-edt-version"], keys)
            )

    start(old, 0)
    start(new, 1)
    first = sides()
    assert 10 <= first.count("digits/4") <= 55
    assert sides() == first
    old, new = edge.target("old", share=50), edge.target("new", version="digits/4", share=50)
    later = sides()
    # Those that were on the new side stay there.
    assert all(now == "digits/4" for before, now in zip(first, later, strict=True) if before == "digits/4")
    assert 50 <= later.count("digits/4") <= 100
    # A version that is asked for by number is answered by it, and callers of the server are told apart.
    answer = edge.post("/v2/models/digits/versions/4/infer", X_EDT_Inner=edge.inner)
    assert answer.headers["x-edt-version"] == "digits/4"
    seen = {
        edge.post(X_EDT_Inner=edge.inner, X_EDT_Caller=f"person {each}").headers["x-edt-version"] for each in range(40)
    }
    assert seen == {"digits/3", "digits/4"}


def test_only_pages_of_the_origins_may_call(edge, start):
    target = edge.target()
    edge.tell(
        EdgeDeployment(name="shop", targets=(target,), public=True, origins=("https://shop.example",)),
        EdgeDeployment(name="open", targets=(edge.target("open"),), public=True, origins=("*",)),
        EdgeDeployment(name="closed", targets=(edge.target("closed"),), public=True),
    )
    start(target)

    def asked(name, origin):
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type",
        }
        answer = requests.options(f"{edge.url}/predict/{name}", headers=headers, timeout=60)
        return answer.status_code, answer.headers.get("access-control-allow-origin")

    assert asked("shop", "https://shop.example") == (200, "https://shop.example")
    assert asked("shop", "https://evil.example") == (400, None)
    assert asked("open", "https://any.example") == (200, "*")
    assert asked("closed", "https://shop.example") == asked("none", "https://shop.example") == (400, None)
    answer = edge.post("/predict/shop", Origin="https://shop.example")
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert "x-edt-version" in answer.headers["access-control-expose-headers"].lower()
    # A page may read why it was refused.
    answer = edge.post("/predict/shop", b"1", Origin="https://shop.example", Content_Type="text/csv")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (415, "https://shop.example")
    assert "access-control-allow-origin" not in edge.post("/predict/shop", Origin="https://evil.example").headers


def test_large_bodies_pass_whole(edge, start):
    target = edge.target()
    edge.deploy(target)
    start(target)
    body = bytes(range(256)) * (12 << 12)
    assert edge.post(data=body, Content_Type="application/octet-stream").content == body


def test_a_hundred_idle_ticks_leave_a_waiting_caller_alone(edge, start):
    """A caller that is watched while it waits is answered, and its connection serves the next request."""
    target = edge.target()
    edge.deploy(target)
    session = requests.Session()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(session.post, f"{edge.url}/predict/digits", data=b"[1]", timeout=60)
        until(lambda: (counters := edge.counters()) and counters.waited > 0.5, "a while")
        start(target)
        assert answer.result().content == b"[1]"
    begun = time.monotonic()
    assert session.post(f"{edge.url}/predict/digits", data=b"[2]", timeout=60).content == b"[2]"
    assert time.monotonic() >= begun
    session.close()
    assert json.loads(edge.get("/edt/state").content)["began"] > 0
