import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.http.connection import Connection
from edt_sdk.http.following import EventParser, ServerEvent, follow
from edt_sdk.schemas.errors import NotFound, ServerUnreachable

TEXT = (
    "\ufeff: hello\n\nid: 1\nevent: line\ndata: first\ndata:  indented\n\nid: 2\r\ndata:äöü\r\rretry: 5\n"
    "event: end\nid: a\0b\ndata\n\nevent: dropped\n\ndata: unfinished"
).encode()
EVENTS = [
    ServerEvent("line", "first\n indented", "1"),
    ServerEvent("message", "äöü", "2"),
    ServerEvent("end", "", "2"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_any_split_of_the_bytes_gives_the_same_events(cuts):
    parser, events, start = EventParser(), [], 0
    for cut in [*sorted(cuts), len(TEXT)]:
        events += parser.feed(TEXT[start:cut])
        start = cut
    assert events == EVENTS
    assert parser.last_id == "2"


def test_a_dropped_stream_is_resumed_after_its_last_event(peer, stream, events):
    answers = [
        stream(events((1, "line", "a"), (2, "line", "b")), b"id: 3\nevent: line\nda", end=False),
        stream(events((3, "line", "c")), end=False),
        stream(events((4, "line", "d"), (4, "end", {}))),
    ]
    peer.on("GET", "jobs/x/logs", lambda _: answers.pop(0))
    connection = Connection(peer.url, peer.token)
    seen = [e.data for e in follow(connection, "jobs/x/logs", params={"stream": "all"}) if e and e.kind == "line"]
    connection.close()
    assert seen == ['"a"', '"b"', '"c"', '"d"']
    assert [r.query.get("after") for r in peer.requests] == [None, "2", "3"]
    assert [r.headers.get("Last-Event-ID") for r in peer.requests] == [None, "2", "3"]
    assert all(r.query["stream"] == "all" and r.query["follow"] == "1" for r in peer.requests)


def test_a_refusal_is_not_retried(peer):
    connection = Connection(peer.url, peer.token)
    with pytest.raises(NotFound):
        list(follow(connection, "jobs/none/events"))
    connection.close()
    assert len(peer.requests) == 1


def test_patience_ends(peer):
    peer.on("GET", "jobs/x/events", lambda _: (503, {"message": "starting"}))
    connection = Connection(peer.url, peer.token)
    with pytest.raises(ServerUnreachable):
        list(follow(connection, "jobs/x/events", patience=0.2))
    connection.close()
    assert len(peer.requests) >= 2
