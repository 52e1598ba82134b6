"""Every bad submission is told what is wrong, with its status, and leaves neither a job nor a file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sys
import tarfile

import pytest

from edt_sdk.schemas.errors import BY_CODE
from tests.waiting import until_async


@pytest.fixture
def refused(submit, call, leftovers):
    async def send(status, code, *words, **what):
        answer = await submit(**what)
        assert answer.status == status, answer.json
        assert answer.json["code"] == code
        assert BY_CODE[code].status == status
        said = f"{answer.json['message']} {answer.json['hint']}"
        for word in words:
            assert word in said
        assert (await call("GET", "jobs", params={"all": 1})).json == {"jobs": []}
        await until_async(lambda: not leftovers(), "the upload's removal")
        return answer.json

    return send


def tar_of(member, data=b""):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        train = tarfile.TarInfo("train.py")
        tar.addfile(train, io.BytesIO(b""))
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


async def test_main_missing_from_the_package(refused):
    body = await refused(400, "bad_package", "train.py", "model.py", files={"model.py": b""})
    assert body["field"] == "main"


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil.py"])
async def test_names_that_leave_the_package(refused, name):
    await refused(400, "bad_package", name, archive=tar_of(tarfile.TarInfo(name)))


async def test_a_symlink_out(refused):
    member = tarfile.TarInfo("out")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    await refused(400, "bad_package", "/etc/passwd", archive=tar_of(member))


async def test_no_archive_at_all(refused):
    await refused(400, "bad_package", archive=b"not an archive")


@pytest.mark.parametrize(
    ("changes", "status", "code", "word"),
    [
        ({"max_workers": 0}, 422, "unprocessable", "max_workers"),
        ({"max_workers": 2**63}, 422, "unprocessable", "max_workers"),
        ({"min_workers": 2**70}, 422, "unprocessable", "min_workers"),
        ({"threads_per_slot": 1_000_000}, 422, "unprocessable", "threads_per_slot"),
        ({"priority": 0}, 422, "unprocessable", "priority"),
        ({"instance_group": "gpu-queue"}, 422, "unprocessable", "default"),
        ({"mode": "loose"}, 422, "unprocessable", "mode"),
        ({"name": " "}, 400, "invalid_request", "name"),
        ({"name": "a\x1b[2Jb"}, 400, "invalid_request", "name"),
        ({"main": f"{'a' * 900_000}.py"}, 400, "invalid_request", "main"),
        ({"python": f"/{'a' * 10_000}"}, 400, "invalid_request", "python"),
        ({"main": "../train.py"}, 400, "invalid_request", "main"),
        ({"env": {"A=B": "1"}}, 400, "invalid_request", "A=B"),
        ({"max_workers": "four"}, 400, "invalid_request", "max_workers"),
        ({"code_dir": "../x"}, 400, "bad_package", "code_dir"),
        ({"python_version": "2.7"}, 422, "unprocessable", "2.7"),
        ({"warm_start": "no-such-job"}, 404, "not_found", "no-such-job"),
    ],
)
async def test_a_specification_that_cannot_be_used(refused, changes, status, code, word):
    await refused(status, code, word, **changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"min_worker": 2}, "There is no field 'min_worker'. Did you mean 'min_workers'?"),
        ({"max_workers": "4"}, "max_workers must be a whole number, not the text '4'."),
        ({"tags": ["a", 3]}, "tags[1] must be a text, not 3."),
        ({"args": "--name 'x"}, "args is a text that a shell could not split"),
        ({"framework": "pytorch"}, "Did you mean 'PyTorch'?"),
        ({"main": "tran.py"}, "Did you mean 'train.py'?"),
    ],
)
async def test_a_mistake_is_answered_with_what_is_meant(refused, submit, changes, sentence):
    answer = await submit(**changes)
    await refused(answer.status, answer.json["code"], sentence, **changes)
    assert answer.status in (400, 422)


async def test_code_that_is_not_python_makes_no_job(refused):
    files = {"train.py": b"import model\n", "model.py": b"def build()\n    pass\n"}
    body = await refused(400, "bad_package", "model.py, line 1 is not Python", "def build()", files=files)
    assert (body["file"], body["line"]) == ("model.py", 1)


async def test_arguments_may_be_one_text_and_unknown_settings_are_ignored(submit, call):
    answer = await submit(args="--epochs 5 'two words'", setting_of_a_newer_client=True)
    assert answer.status == 201
    assert answer.json["args"] == ["--epochs", "5", "two words"]
    changed = await call("PATCH", f"jobs/{answer.json['id']}", body={"prioriy": 3})
    assert (changed.status, changed.json["hint"]) == (422, "Did you mean 'priority'?")


async def test_another_python_names_both_versions(refused):
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    await refused(422, "unprocessable", "3.2", here, sys.executable, python_version="3.2", python=sys.executable)


async def test_an_interpreter_without_jupyter_edt(refused, tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 3.9 False\n")
    fake.chmod(0o755)
    await refused(422, "unprocessable", str(fake), "pip install", python=str(fake))


async def test_an_interpreter_of_another_host_is_replaced_by_the_servers(submit, call):
    answer = await submit(
        python="/nowhere/bin/python", python_version=f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    assert answer.status == 201


@pytest.mark.parametrize(
    "parts",
    [
        (("spec", b"{}"),),
        (("package", b"x"),),
        (("spec", b"{}"), ("spec", b"{}"), ("package", b"x")),
        (("spec", b"{}"), ("package", b"x"), ("other", b"x")),
        (("spec", b"not json"), ("package", b"x")),
        (("spec", b"[" + b" " * (2 << 20) + b"]"), ("package", b"x")),
    ],
    ids=["no package", "no spec", "spec twice", "unknown part", "no json", "endless spec"],
)
async def test_parts_that_are_wrong(refused, parts):
    await refused(400, "invalid_request", parts=parts)


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "text/plain; boundary=x", ""])
async def test_a_wrong_content_type(call, leftovers, kind):
    answer = await call("POST", "jobs", body=b"{}", headers={"Content-Type": kind})
    assert (answer.status, answer.json["code"]) == (400, "invalid_request")
    assert "multipart/form-data" in answer.json["hint"]
    assert leftovers() == []


async def test_a_body_that_breaks_off(call, leftovers):
    from_conftest = b'--B\r\nContent-Disposition: form-data; name="spec"\r\n\r\n{}\r\n--B\r\n'
    answer = await call("POST", "jobs", body=from_conftest, headers={"Content-Type": "multipart/form-data; boundary=B"})
    assert answer.status == 400
    assert leftovers() == []


class TestTheCap:
    @pytest.fixture
    def edt_config(self):
        return {"max_upload_bytes": 100_000}

    async def test_refuses_by_announced_length_before_the_body(self, connect, leftovers):
        """Only the head of the request is ever sent: the answer cannot have waited for the rest."""
        reader, _ = await connect({"Content-Length": str(10**12)})
        status, body = await read_answer(reader)
        assert (status, body["code"], body["limit"]) == (413, "too_large", 100_000)
        assert leftovers() == []

    async def test_refuses_while_a_body_of_unknown_length_arrives(self, connect, leftovers):
        reader, writer = await connect({"Transfer-Encoding": "chunked"})
        start = PACKAGE_PART + bytes(50_000)
        writer.write(b"%x\r\n%s\r\n" % (len(start), start))
        await until_async(leftovers, "the upload's file")
        writer.write(b"%x\r\n%s\r\n" % (60_000, bytes(60_000)))
        status, body = await read_answer(reader)
        assert (status, body["code"]) == (413, "too_large")
        assert leftovers() == []

    async def test_a_sender_that_gives_up_leaves_nothing(self, connect, leftovers):
        _, writer = await connect({"Content-Length": "90000"})
        writer.write(PACKAGE_PART + bytes(5000))
        await until_async(leftovers, "the upload's file")
        writer.close()
        await until_async(lambda: not leftovers(), "its removal")

    async def test_refuses_a_package_over_it_and_takes_one_of_exactly_the_cap(self, refused):
        body = await refused(413, "too_large", "100000", archive=os.urandom(100_001))
        assert body["limit"] == 100_000
        await refused(400, "bad_package", archive=os.urandom(100_000))  # taken whole, then found to be no archive


async def test_without_authentication_the_body_is_never_read(connect, leftovers):
    reader, _ = await connect({"Content-Length": "1000", "Authorization": "token wrong"})
    status, body = await read_answer(reader)
    assert (status, body["code"]) == (403, "not_allowed")
    assert leftovers() == []


PACKAGE_PART = b'--B\r\nContent-Disposition: form-data; name="package"; filename="p"\r\n\r\n'


async def read_answer(reader):
    """Status and JSON of an answer, as soon as it is there."""
    async with asyncio.timeout(180):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.search(r"Content-Length: (\d+)", head)[1])
        return int(head.split()[1]), json.loads(await reader.readexactly(length))


@pytest.fixture
def connect(call, jp_auth_header, jp_base_url, jp_http_port, jp_asyncio_loop):
    """Open a connection and send the head of a submission, with these headers."""
    writers = []

    async def open_connection(headers):
        reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
        writers.append(writer)
        kind = {"Host": f"localhost:{jp_http_port}", "Content-Type": "multipart/form-data; boundary=B"}
        lines = "".join(f"{key}: {value}\r\n" for key, value in {**jp_auth_header, **kind, **headers}.items())
        writer.write(f"POST {jp_base_url}edt/api/jobs HTTP/1.1\r\n{lines}\r\n".encode())
        return reader, writer

    async def close():
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    yield open_connection
    jp_asyncio_loop.run_until_complete(close())
