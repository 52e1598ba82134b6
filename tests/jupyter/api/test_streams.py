"""Server-sent events: complete, resumable at every id, over when the job or the server is."""

from __future__ import annotations

import asyncio
import json

import pytest

from edt_sdk.http.following import EventParser
from tests.waiting import until_async

TALKER = {"train.py": b"for k in range(20):\n    print('line', k, flush=True)\n"}


@pytest.fixture
def follow(jp_fetch):
    """The events of a stream, as (kind, JSON, id); `on_event` hears each as it comes."""

    async def read(job, path, *, after=None, on_event=None):
        parser, events = EventParser(), []

        def feed(chunk):
            for event in parser.feed(chunk):
                events.append((event.kind, json.loads(event.data), event.id))
                if on_event is not None:
                    on_event(*events[-1])

        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        answer = await jp_fetch(
            "edt", "api", "jobs", job, path, params={"follow": "1"}, headers=headers, streaming_callback=feed,
            request_timeout=180,
        )  # fmt: skip
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Accel-Buffering"] == "no"
        return events

    return read


def settled(record):
    """A record without what may be known better later: a line read at once has its file's time until it is indexed."""
    kind, data, number = record
    return kind, {key: value for key, value in data.items() if kind != "line" or key != "time"}, number


def by_stream(records):
    """The records without their ids, one stream after the other. Which is read first while a job runs is chance."""
    return sorted((settled(record)[:2] for record in records), key=lambda record: record[1].get("stream", ""))


@pytest.mark.parametrize("path", ["logs", "events"])
async def test_is_complete_and_resumes_after_every_id(submit, follow, path):
    job = (await submit(TALKER, framework="PyTorch")).json["id"]
    numbered = {"logs": "line", "events": "event"}[path]
    whole = await follow(job, path)  # from before the first line to behind the last
    assert whole[-1][0] == "end"
    records = [event for event in whole if event[0] == numbered]
    assert len({event[2] for event in records}) == len(records) >= 5
    for place in range(0, len(records), max(1, len(records) // 6)):
        rest = await follow(job, path, after=records[place][2])
        told = [event for event in rest if event[0] == numbered]
        assert by_stream(told) == by_stream(records[place + 1 :])
        assert rest[-1][0] == "end"


async def test_the_log_stream_has_every_line_in_order(submit, follow):
    job = (await submit(TALKER)).json["id"]
    told = [
        data["text"] for kind, data, _ in await follow(job, "logs") if kind == "line" and data["stream"] == "stdout"
    ]
    assert told == [f"line {k}" for k in range(20)]


async def test_the_event_stream_shows_the_job_after_each_change(submit, follow, call):
    job = (await submit()).json["id"]
    stop = asyncio.Event()

    def on_event(kind, data, _id):
        if kind == "event" and data["kind"] == "run_started":
            stop.set()

    reading = asyncio.ensure_future(follow(job, "events", on_event=on_event))
    await asyncio.wait_for(stop.wait(), 180)
    await call("POST", f"jobs/{job}/stop", body=b"")
    events = await reading
    views = [data for kind, data, _ in events if kind == "job"]
    assert views[0]["state"] == "LAUNCHING"
    assert (views[-1]["state"], views[-1]["slots"]) == ("KILLED", 0)
    assert [kind for kind, _, _ in events][-2:] == ["job", "end"]
    assert (await call("GET", f"jobs/{job}")).json == views[-1]


async def test_streams_end_with_the_server_and_do_not_say_end(edt, submit, follow):
    """A reader that hears no `end` comes back, to this server or the next one."""
    job = (await submit()).json["id"]
    streams = [asyncio.ensure_future(follow(job, path)) for path in ("logs", "events", "metrics")]
    await until_async(lambda: len(edt.service.hub._watches.get(job, ())) == 3, "three readers")
    edt.service.hub.close()
    async with asyncio.timeout(180):
        for events in await asyncio.gather(*streams):
            assert "end" not in [kind for kind, _, _ in events]


async def test_a_reader_that_leaves_is_forgotten(edt, submit, jp_auth_header, jp_base_url, jp_http_port, call):
    job = (await submit()).json["id"]
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    writer.write(
        f"GET {jp_base_url}edt/api/jobs/{job}/events?follow=1 HTTP/1.1\r\nHost: localhost:{jp_http_port}\r\n"
        f"Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode()
    )
    await asyncio.wait_for(reader.readuntil(b"event: job"), 180)
    assert job in edt.service.hub._watches
    writer.close()
    await until_async(lambda: job not in edt.service.hub._watches, "the reader's end")
