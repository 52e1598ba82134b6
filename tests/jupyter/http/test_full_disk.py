"""The disk of the job store is full: reading, stopping and deleting go on, and make the room that is missing."""

from __future__ import annotations

import logging

import pytest

from tests.server.store.trouble import fill, small_disk
from tests.waiting import until_async

ROOM = 48 << 20
RENEWALS = 5
WRITES = b"import os\nopen(os.environ['RESULT_DIR'] + '/big', 'wb').write(bytes(1 << 20))"


@pytest.fixture(autouse=True)
def disk(tmp_path):
    """A small file system in the place of `data_dir`, made before the server starts."""
    folder = tmp_path / "edt"
    folder.mkdir()
    with small_disk(folder, ROOM) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        yield folder


async def test_a_full_disk_stops_no_reading_stopping_and_deleting(edt, call, submit, disk, caplog):
    async def is_in(job, state):
        return (await call("GET", f"jobs/{job}")).json["state"] == state

    ended = (await submit({"train.py": WRITES}, framework="PyTorch")).json["id"]
    await until_async(lambda: is_in(ended, "FINISHED"), "the end of a job")
    running = (await submit(framework="PyTorch")).json["id"]

    async def has_said_hello():
        return "hello" in str((await call("GET", f"jobs/{running}/logs")).json)

    # Without room for its first words it would fail by itself.
    await until_async(has_said_hello, "a job's first words")
    caplog.clear()
    store, seen = edt.service.store, set()

    async def renewed():
        # Again and again: what the server frees by itself is taken by others.
        fill(disk / "ballast")
        for asked in ("jobs", f"jobs/{running}", f"jobs/{running}/logs", "cluster"):
            answer = await call("GET", asked)
            assert answer.status == 200, (asked, answer.json)
        seen.add(store.lease("leader"))
        return len(seen) > RENEWALS

    # Longer than a lease is valid.
    await until_async(renewed, "the next renewals of the lease")
    for _ in range(10):
        refused = await submit()
        assert refused.status == 507, refused.json
        assert "no room left" in refused.json["message"]
    stopped = await call("POST", f"jobs/{running}/stop")
    assert stopped.status == 202, stopped.json
    await until_async(lambda: is_in(running, "KILLED"), "the end of the stopped job")
    for job in (ended, running):
        assert (await call("DELETE", f"jobs/{job}")).status == 204
        assert (await call("GET", f"jobs/{job}")).status == 404
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    lines = "\n".join(said).splitlines()
    assert 1 <= sum("No space left" in line for line in lines) <= 2, "\n".join(lines)
    assert len(lines) <= 20, "\n".join(lines)
    (disk / "ballast").unlink()
    later = (await submit({"train.py": b"pass"}, framework="PyTorch")).json["id"]
    await until_async(lambda: is_in(later, "FINISHED"), "the end of a job on a disk with room")
