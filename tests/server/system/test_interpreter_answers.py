"""What an interpreter that does not work is told to be: it is asked for real, and the reason is in the message."""

from __future__ import annotations

import os
import sys

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_server.system import interpreters
from edt_server.system.detached import inherited
from edt_server.system.interpreters import Interpreters

pytestmark = pytest.mark.asyncio


def program(folder, script):
    made = folder / "python"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(0o755)
    return str(made)


def job(python):
    return JobSpec(name="job", main="train.py", max_workers=1, python=python)


async def test_one_that_never_answers_is_said_not_to(tmp_path, monkeypatch):
    monkeypatch.setattr(interpreters, "_LIMIT", 0.2)
    silent = program(tmp_path, "exec sleep 60")
    with pytest.raises(Unprocessable) as raised:
        await Interpreters("/nowhere/python", {}).choose(job(silent))
    assert str(raised.value.message) == f"The interpreter {silent} does not work: it does not answer."


async def test_a_program_that_a_user_names_sees_what_a_job_sees_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    curious = program(tmp_path, f'env > {tmp_path}/seen\nexec {sys.executable} "$@"')
    chosen = await Interpreters("/nowhere/python", inherited(os.environ)).choose(job(curious))
    assert chosen.ready
    seen = (tmp_path / "seen").read_text()
    assert "PATH=" in seen
    assert "secret" not in seen


async def test_one_that_fails_is_told_with_its_exit_code(tmp_path):
    failing = program(tmp_path, "exit 3")
    with pytest.raises(Unprocessable, match=r"does not work: it ended with code 3\."):
        await Interpreters("/nowhere/python", {}).choose(job(failing))
