"""The path of a job's settings, from `%edt_update` to the scheduler's job and to the store, followed by a profiler.

It prints which functions of ours are handed the priority on its way, and in which types, and bounds both. The way ends
at what holds a whole job or the transaction: the scheduler's job, the claim it makes of it, the row and the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import threading
from collections import Counter

import msgspec
import pytest

from tests.waiting import until

VALUE = 7919  # a prime that nothing else has
OURS = ("edt_sdk", "edt_server", "edt_jupyter")
MOST_FUNCTIONS, MOST_SHAPES = 40, 6
ENDS = {"CoreJob", "Claim", "Change", "JobRow", "JobView", "Situation", "Standing"}


def carries(value, depth=3):
    """True when the value is the priority, or has it in it."""
    if isinstance(value, (int, float)):
        return value == VALUE and not isinstance(value, bool)
    if isinstance(value, (str, bytes)):
        return str(VALUE) in str(value)
    if not depth or type(value).__name__ in ENDS:
        return False
    if isinstance(value, dict):
        return any(carries(each, depth - 1) for each in value.values())
    if isinstance(value, (list, tuple)):
        return any(carries(each, depth - 1) for each in value)
    return any(carries(each, depth - 1) for each in fields_of(value))


def fields_of(value):
    if isinstance(value, argparse.Namespace):
        return list(vars(value).values())
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()


class Follower:
    """A profile hook that notes which functions are called with the priority, and in what."""

    def __init__(self):
        self.functions = Counter()
        self.shapes = Counter()
        self.watching = False

    def __call__(self, frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if not self.watching or event != "call" or module.partition(".")[0] not in OURS:
            return
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [frame.f_locals[name] for name in names if name != "self" and name in frame.f_locals]
        found = [value for value in given if carries(value)]
        if found:
            self.functions[f"{module}.{code.co_qualname}"] += 1
            self.shapes.update({shape(value) for value in found} - {"int"})


def shape(value):
    """The type that has the value, of ours by its name; a row or message of any keys is a dict, text is text."""
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (list, tuple)):
        return shape(next(each for each in value if carries(each)))
    return type(value).__name__


@pytest.fixture
def follower():
    """Before the server, so that its threads have the hook from their start."""
    made = Follower()
    threading.setprofile(made)
    yield made
    threading.setprofile(None)


@pytest.mark.parametrize("edt_config", [{"local_slots": 1}])
async def test_a_priority_on_its_way(follower, edt, submit, call, jp_serverapp, monkeypatch, edt_config):
    jobs = [(await submit(name=name)).json["id"] for name in ("one", "two")]
    monkeypatch.setenv("EDT_URL", jp_serverapp.connection_url)
    monkeypatch.setenv("EDT_TOKEN", jp_serverapp.identity_provider.token)
    requests, sent = [], []
    monkeypatch.setitem(jp_serverapp.web_app.settings, "log_function", requests.append)

    def update():
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell()
        shell.extension_manager.load_extension("edt_sdk")
        shell.run_line_magic("edt_cluster", "")  # finds the server, which is no part of the change
        # The server logs a request after it has answered it, and the magic makes more than one.
        until(lambda: any(each.request.path.endswith("/cluster") for each in requests), "the log of the first magic")
        requests.clear()
        follower.watching = True
        changed = shell.run_line_magic("edt_update", f"{jobs[1]} --priority {VALUE}")
        follower.watching = False
        until(lambda: requests, "the log of the change")
        sent.extend(requests)
        shell.magics_manager.registry["EdtMagics"]._session.client.close()
        return changed.view

    sys.setprofile(follower)
    try:
        view = await asyncio.to_thread(update)
    finally:
        sys.setprofile(None)
    assert view.priority == VALUE
    print(f"\n{len(follower.functions)} functions, {len(follower.shapes)} shapes: {dict(follower.shapes)}")
    print("\n".join(follower.functions))
    assert [f"{r.request.method} {r.request.path.rpartition('/')[2]}" for r in sent] == [f"PATCH {jobs[1]}"]
    assert len(follower.functions) <= MOST_FUNCTIONS
    assert len(follower.shapes) <= MOST_SHAPES
