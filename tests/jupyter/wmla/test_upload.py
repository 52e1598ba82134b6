"""Uploads of WMLA's clients at their limits: refused early, in text, with nothing left; and their odd forms."""

from __future__ import annotations

import json

import pytest

from tests.jupyter.wmla.test_logon import ask  # noqa: F401
from tests.packages import packed

EXECS = "platform/rest/deeplearning/v1/execs"
SCRIPT = b"print('here', flush=True)\n"
ARGS = "--exec-start PyTorch --model-main train.py"


@pytest.fixture
def edt_config():
    return {"max_upload_bytes": 1 << 16}


def form(*parts, boundary=b"XXX", close=True):
    """(name, file name or None, content) parts as a body."""
    body = b""
    for name, filename, content in parts:
        named = b"" if filename is None else b'; filename="%s"' % filename.encode()
        body += b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (boundary, name.encode(), named)
        body += content + b"\r\n"
    return body + (b"--%s--\r\n" % boundary if close else b"")


@pytest.fixture
def post(ask, jp_auth_header):  # noqa: F811
    async def send(*parts, args=ARGS, content_type="multipart/form-data; boundary=XXX", **more):
        headers = {**jp_auth_header, "Content-Type": content_type}
        body = more.pop("body", None) or form(*parts, **more)
        return await ask("POST", EXECS, headers, body=body, params={"args": args} if args else {})

    return send


async def test_what_is_too_large_is_refused(post, leftovers):
    for size in (100_000, 3 << 20):  # found while it comes, and by its length alone
        answer = await post(("file", "train.py", b"#" * size))
        assert (answer.status, answer.text.startswith("Error 413: ")) == (413, True)
        assert "max_upload_bytes" in answer.text
    # Several files count together.
    answer = await post(*(("file", f"{n}.py", b"#" * 10_000) for n in range(8)))
    assert answer.status == 413
    answer = await post(("data", None, b" " * (1 << 20) + b"{}"), ("file", "train.py", SCRIPT))
    assert (answer.status, "form fields are larger" in answer.text) == (400, True)
    assert leftovers() == []


async def test_what_is_cut_off_or_garbled_is_refused(post, leftovers):
    for send in (
        lambda: post(("file", "train.py", SCRIPT), close=False),
        lambda: post(body=b"--YYY\r\nnonsense"),
        lambda: post(("file", "train.py", SCRIPT), content_type="multipart/form-data"),
        lambda: post(("file", "train.py", SCRIPT), content_type="application/json"),
        lambda: post(("data", None, b"\xff"), ("file", "train.py", SCRIPT)),
        lambda: post(("data", None, b"[]"), ("file", "train.py", SCRIPT)),
    ):
        answer = await send()
        assert (answer.status, answer.text.startswith("Error 400: ")) == (400, True), answer.text
    assert leftovers() == []


async def test_many_files_of_any_part_name(post, leftovers):
    answer = await post(("train.py", "train.py", SCRIPT), ("file", "sub/conf.json", b"{}"))
    assert answer.status == 200, answer.text
    code = [path for path in leftovers() if "_submitted_code" in path]
    assert sorted(path.rpartition("_submitted_code/")[2] for path in code) == ["conf.json", "train.py"]
    assert not [path for path in leftovers() if path.startswith("uploads")]


async def test_the_args_may_be_in_the_form(post):
    data = json.dumps({"args": "--exec-start PyTorch --model-main train.py --model-dir m"}).encode()
    archive = packed({"m/train.py": SCRIPT})
    answer = await post(("file", None, archive), ("data", None, data), args="")
    assert answer.status == 200, answer.text
    assert answer.json["workDir"].endswith("/_submitted_code/m")
