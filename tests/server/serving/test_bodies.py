"""Requests of every kind: the edge answers each of them, with a sentence where it refuses, and goes on."""

import http.client
import json
import socket

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from edt_sdk.schemas.serving.edge_file import EdgeDeployment
from tests.server.serving.conftest import key

NAMES = ("digits", "closed", "stopped", "none", "%2e%2e", "d%C3%A9", "a%2Fb", "%00", "digits%20")
PATHS = st.one_of(
    st.sampled_from(["/v2", "/v2/health/ready", "/metrics", "/edt/state", "/", "//", "/predict", "/predict/", "/%"]),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["/predict/", "/invocations/", "/v2/models/"]),
        st.sampled_from(NAMES),
        st.sampled_from(
            ["", "/", "/infer", "/ready", "/versions/3/infer", "/versions/x/infer", "/versions/3/ready", "?a=b"]
        ),
    ),
)
VALUES = st.one_of(
    st.sampled_from(
        [
            "application/json",
            "application/json; charset=utf-8",
            "text/plain",
            "gzip",
            "identity",
            "Bearer",
            "Bearer x",
            "*",
        ]
    ),
    st.integers(-5, 300).map(str),
    st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20).map(str.strip),
)
HEADERS = st.dictionaries(
    st.sampled_from([
        "Content-Type", "Content-Encoding", "Inference-Header-Content-Length", "Authorization", "X-Auth-Token",
        "X-User-Token", "X-EDT-Inner", "X-EDT-Caller", "X-Request-Id", "Origin", "Access-Control-Request-Method",
        "Access-Control-Request-Headers", "Accept", "Expect",
    ]),
    VALUES,
    max_size=5,
)  # fmt: skip
BODIES = st.one_of(st.binary(max_size=300), st.sampled_from([b"{}", b"[", b'{"inputs": [NaN]}', b"\0" * 200]))


def test_no_request_breaks_the_edge(edge, start):
    target, other = edge.target(), edge.target("closed")
    _, known = key("shop")
    edge.tell(
        EdgeDeployment(name="digits", targets=(target,), public=True, origins=("https://a.example",), max_body=200),
        EdgeDeployment(name="closed", targets=(other,), keys=(known,)),
        EdgeDeployment(name="stopped", public=True),
    )
    replica = start(target)
    edge.connected()
    connection = http.client.HTTPConnection("127.0.0.1", edge.address.port, timeout=60)

    @settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(["POST", "POST", "GET", "OPTIONS", "HEAD", "PUT"]), PATHS, HEADERS, BODIES)
    def ask(method, path, headers, body):
        sent = {name: value.encode("latin-1") for name, value in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status < 500, (answer.status, content)
        if (
            answer.status >= 400
            and method not in ("HEAD", "OPTIONS")
            and answer.getheader("content-type") == "application/json"
        ):
            assert json.loads(content)["error"]

    ask()
    connection.close()
    assert edge.post(data=b"[1]").content == b"[1]"
    assert replica.connections == 1


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=200))
def test_no_bytes_break_the_edge(shared_edge, data):
    with socket.create_connection(("127.0.0.1", shared_edge.address.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert shared_edge.get("/v2/health/live").ok
