"""A grammar of requests, made from a table of routes: paths, queries, headers, JSON, forms, and uploads with archives.

Where a path names a job, a number is drawn and not an id: so what is drawn does not depend on which jobs there are.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st
from tornado.web import RequestHandler

from tests.hostile.archives import zoo
from tests.hostile.world import SCRIPT
from tests.packages import packed

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SMALL = [packed({"train.py": SCRIPT}), packed({"main.py": SCRIPT}), b"", b"\x1f\x8b", b"PK\x03\x04", b"\0" * 1024]

# --- values -----------------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30]),
    st.integers(),
    st.sampled_from(["NaN", "inf", "-inf", "1e999", "0x10", "١", "1_000", " 1", "1.0", "-0"]),
)
texts = st.one_of(
    st.sampled_from(
        ["default", "", " ", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "\x00", "\x1b[2J", "a\nb", "%", "%00"]
    ),
    st.sampled_from(["'", '"', "';--", "${x}", "{}", "\u202e", "\ud800", "e\u0301", "ﷺ" * 300, "x" * 5000, "null"]),
    st.text(max_size=40),
)
commands = st.sampled_from(
    [
        "--exec-start PyTorch --model-main train.py",
        "--exec-start PyTorch --model-main main.py --model-dir m --numWorker 1",
        "--exec-start PyTorch --model-main 'train.py",
        "--exec-start distPyTorch --numWorker 99999999999999999999 --workerDeviceNum x --model-main train.py",
        "--exec-start",
    ]
)
# Places in a log that no server has given out.
cursors = st.sampled_from([{"o": 2**63 - 1}, {"o": 2**63}, {"e": 2**200}, {"l:../../x": 1}, {"x": -1}]).map(
    lambda place: base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
)
values = st.one_of(texts, numbers, commands, cursors, st.sampled_from(["nan,x", "inf,x", "-1e999,", "1,"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
_DEEP = [b"[" * 50_000, b'{"a":' * 50_000, b"[" * 900 + b"]" * 900, b'{"a":' * 400 + b"1" + b"}" * 400]
_ODD = [b"", b"\xff", b"\xef\xbb\xbf{}", b"nul", b"1e999", b'{"a":1,"a":2}', b"{}" * 2, b'"\\ud800"', b"9" * 5000]


@dataclass(frozen=True)
class Sent:
    """A request to a route."""

    path: str
    query: str
    headers: dict[str, str]
    body: bytes | None


# --- a table of routes ------------------------------------------------------------------------------------------------


def operations(routes: Iterable[tuple[str, type[RequestHandler]]]) -> list[tuple[str, str]]:
    """Every verb and path of a table of routes, deletions last."""
    found = [
        (verb, path)
        for path, handler in routes
        for verb in VERBS
        if getattr(handler, verb.lower()) is not getattr(RequestHandler, verb.lower())
    ]
    return sorted(found, key=lambda operation: VERBS.index(operation[0]))


def filled(path: str, jobs: Sequence[str], pick: int, other: str = "") -> str:
    """The path with names of what there is, or with `other` in the place of one of them."""
    place = iter(range(path.count("{")))
    wrong = pick % max(1, path.count("{")) if other else -1

    def name(match: re.Match[str]) -> str:
        if next(place) == wrong:
            return quote(other.encode("utf-8", "surrogatepass"), safe="")
        job = jobs[pick % len(jobs)]
        kinds = ("stdout", "stderr", "launcherlog", "loss", "allocation", "timeline", "slots")
        known = {
            "id": job,
            "driverId": f"driver-{job}",
            "executorId": f"{pick % 2}-{job}",
            "kind": kinds[pick % 3],
            "picture": kinds[3 + pick % 4],
            "n": str(pick % 3),
            "file": quote("default/main.py", safe=""),
        }
        return known.get(match[1], ("default", "pictures", "first")[pick % 3])

    return re.sub(r"\{(\w+)\}", name, path)


def _multipart(parts: Sequence[tuple[bytes, bytes | None, bytes]], boundary: bytes, *, whole: bool) -> bytes:
    body = b""
    for name, filename, content in parts:
        named = b"" if filename is None else b'; filename="%s"' % filename
        body += b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (boundary, name, named)
        body += content + b"\r\n"
    return body + (b"--%s--\r\n" % boundary if whole else b"")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def bodies(fields: Sequence[str]) -> st.SearchStrategy[tuple[str, bytes]]:
    """Content types and bodies: JSON with these fields and others, forms, uploads with archives, and junk."""
    names = st.sampled_from([*fields, "other"])
    objects = st.dictionaries(names, json_values | st.just("default"), max_size=8)
    objects |= st.just(dict.fromkeys(fields, "default"))
    as_json = st.one_of(objects, json_values).map(lambda value: json.dumps(value, default=str).encode())
    types = st.sampled_from(["application/json", "", "text/plain", "application/x-www-form-urlencoded", "multipart/x"])
    form = st.dictionaries(names, values, max_size=6).map(
        lambda found: urlencode({name: _encoded(str(value)) for name, value in found.items()}).encode()
    )
    contents = st.one_of(
        st.sampled_from(_SMALL),
        st.sampled_from([animal.data for animal in zoo() if len(animal.data) < 1 << 16]),
        as_json,
    )
    part_names = st.sampled_from([b"spec", b"package", b"file", b"data", b"args", b"sigName", b'"', b"\xff"])
    filenames = st.sampled_from(
        [None, b"", b"a.tar.gz", b"a.zip", b"train.py", b"../../a.py", b"\xff\x00", b"x" * 3000]
    )
    uploads = st.builds(
        lambda parts, whole: _multipart(parts, b"BB", whole=whole),
        st.lists(st.tuples(part_names, filenames, contents), max_size=4),
        st.integers(0, 9).map(bool),
    )
    boundaries = st.sampled_from(["boundary=BB", "boundary=CC", "", "boundary=", "boundary=" + "B" * 300])
    return st.one_of(
        st.tuples(st.just("application/json"), as_json),
        st.tuples(types, st.sampled_from(_DEEP) | st.sampled_from(_ODD) | st.binary(max_size=200)),
        st.tuples(st.just("application/x-www-form-urlencoded"), form),
        st.tuples(boundaries.map(lambda text: f"multipart/form-data; {text}"), uploads),
        st.tuples(st.just("multipart/form-data; boundary=BB"), uploads),
    )


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(_encoded(text)).decode()


# Who asks, and how. Most requests are of a user whom the server knows.
_WAYS = st.one_of(
    st.sampled_from(["ann", "bob", "eve"]).map(lambda user: {"Authorization": f"token {user}-secret"}),
    st.sampled_from(["ann", "bob", "eve"]).map(lambda user: {"X-Auth-Token": f"{user}-secret"}),
    st.sampled_from(["ann", "bob"]).map(lambda user: {"Authorization": _basic(f"{user}:{user}-secret")}),
    st.sampled_from(
        [{}, {"Authorization": "Basic !"}, {"Authorization": _basic("nothing")}, {"X-Auth-Token": "a" * 59}]
    ),
)
_HEADERS = st.sampled_from(
    [
        {},
        {"Accept": "text/plain"},
        {"Accept": "text/event-stream"},
        {"Last-Event-ID": "o:99"},
        {"If-Match": "x"},
        {"If-None-Match": "*"},
        {"X-HTTP-Method-Override": "DELETE"},
        {"Origin": "http://elsewhere"},
        {"Range": "bytes=0-1,5-"},
        {"Content-Encoding": "gzip"},
        {"X-Edt-Forwarded": "x", "X-Edt-User": "bob"},
        {"Cookie": 'edt-wmla="x; username=2|1'},
    ]
)


@st.composite
def sent(
    draw: Callable[[Any], Any], verb: str, path: str, own: Sequence[str], fields: Sequence[str], jobs: Sequence[str]
) -> Sent:
    """A request to a route. Its handler reads `own` names. `jobs` may grow meanwhile."""
    names = st.sampled_from([*own, "x"]) | st.sampled_from(fields)
    query = draw(st.lists(st.tuples(names, values | st.sampled_from(["default", "1"])), max_size=4))
    encoded = urlencode([(name, _encoded(str(value))) for name, value in query])
    headers = {**draw(_WAYS), **draw(_HEADERS)}
    kind, body = (
        draw(bodies([*own, *fields])) if verb in ("POST", "PUT", "PATCH") else ("", draw(st.sampled_from([None, b"x"])))
    )
    if kind:
        headers["Content-Type"] = kind
    other = draw(st.none() | texts)
    pick = draw(st.integers(0, 1 << 16))
    return Sent(filled(path, jobs, pick, other or ""), encoded, headers, body)
