"""The files of jobs on a host with a disk of its own: what is fetched, what is kept for later jobs, what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import shutil
import stat

import pytest

from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.wire.agent import PART, WINDOW, JobFile
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.files import HostFiles
from edt_server.files import job_trees
from edt_server.files.job_trees import JobTree
from edt_server.messaging import ConversationLost
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
RESULT = "results/ann/batchworkdir/{}"


class Offer:
    """What a server offers of a job, and gives when it is asked. `asked` counts the parts."""

    def __init__(self, job="j", **contents):
        self.base = RESULT.format(job)
        self.contents = {f"{self.base}/{name}": data for name, data in contents.items()}
        self.asked = []
        self.at_once = self.most_at_once = 0

    def entries(self, *, mode=0o600):
        return [
            JobFile(path=path, size=len(data), mode=mode, digest=hashlib.sha256(data).hexdigest())
            for path, data in self.contents.items()
        ]

    async def fetch(self, path, offset):
        self.asked.append((path, offset))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.contents[path][offset : offset + PART]


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "host"


@pytest.fixture
def files(data_dir):
    return HostFiles(data_dir, 1 << 30)


def tree_of(data_dir, job="j"):
    return JobTree(JobPaths(data_dir, "ann", job))


def content(tree):
    return {path: (tree.paths.data_dir / path).read_bytes() for path, _ in tree.files()}


def everything(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def kept(data_dir):
    return {path.name for path in (data_dir / "cache").iterdir()}


async def test_all_files_are_here_with_their_content_and_permissions(files, data_dir):
    data = random.Random(1).randbytes(2 * PART + 7)
    offer = Offer(a=b"", b=b"x", c=data, d=data[:PART])
    tree = tree_of(data_dir)
    await files.have(tree, offer.entries(mode=0o755), offer.fetch)
    assert content(tree) == offer.contents
    assert all(stat.S_IMODE(found.st_mode) & stat.S_IXUSR for _, found in tree.files())
    assert sorted(offer.asked) == sorted(
        [(f"{offer.base}/{name}", offset * PART) for name, offset in (("b", 0), ("c", 0), ("c", 1), ("c", 2), ("d", 0))]
    )


async def test_no_more_is_asked_for_at_once_than_one_connection_carries(files, data_dir):
    offer = Offer(**{f"f{number}": bytes([number]) * 9 for number in range(5 * WINDOW)})
    await files.have(tree_of(data_dir), offer.entries(), offer.fetch)
    assert 1 < offer.most_at_once <= WINDOW


async def test_what_is_here_already_is_not_asked_for(files, data_dir):
    offer = Offer(a=b"1", b=b"2")
    tree = tree_of(data_dir)
    await files.have(tree, offer.entries(), offer.fetch)
    offer.asked.clear()
    offer.contents[f"{offer.base}/b"] = b"3"
    await files.have(tree, offer.entries(), offer.fetch)
    assert offer.asked == [(f"{offer.base}/b", 0)]
    assert content(tree) == offer.contents


@pytest.mark.parametrize("again", [False, True])
async def test_the_content_of_an_earlier_job_is_copied(files, data_dir, again):
    first, second = Offer(a=b"same"), Offer("k", other=b"same")
    await files.have(tree_of(data_dir), first.entries(), first.fetch)
    files.remove(tree_of(data_dir))
    assert not any(root.exists() for root in tree_of(data_dir).roots)
    later = HostFiles(data_dir, 1 << 30) if again else files
    tree = tree_of(data_dir, "k")
    await later.have(tree, second.entries(), second.fetch)
    assert second.asked == []
    assert content(tree) == second.contents
    (place,) = (data_dir / path for path in second.contents)
    place.write_bytes(b"changed by the job")
    third = Offer("l", a=b"same")
    await later.have(tree_of(data_dir, "l"), third.entries(), third.fetch)
    assert content(tree_of(data_dir, "l")) == third.contents, "a job writes to a copy of its own"


@pytest.mark.parametrize("wrong", [b"wrong", b"longer than it should be", b"", b"righ"])
async def test_other_content_than_announced_is_refused(files, data_dir, wrong):
    offer = Offer(a=b"right")
    entries = offer.entries()
    offer.contents = {path: wrong for path in offer.contents}
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="another content")):
        await files.have(tree_of(data_dir), entries, offer.fetch)
    assert content(tree_of(data_dir)) == {}
    assert kept(data_dir) == set(), "it is not kept for others either"
    offer.contents = {path: b"right" for path in offer.contents}
    await files.have(tree_of(data_dir), entries, offer.fetch)
    assert content(tree_of(data_dir)) == offer.contents


@pytest.mark.parametrize("wrong", [ConversationLost("gone"), EdtError("It cannot be read.")])
async def test_a_lost_connection_leaves_no_half_file(files, data_dir, wrong):
    offer = Offer(a=b"x" * (3 * PART), b=b"y")
    tree = tree_of(data_dir)
    (data_dir / offer.base).mkdir(parents=True)
    (data_dir / offer.base / "a").write_bytes(b"of an earlier attempt")

    async def lost(path, offset):
        if offset == PART:
            raise wrong
        return await offer.fetch(path, offset)

    with pytest.RaisesGroup(type(wrong)):
        await files.have(tree, offer.entries(), lost)
    assert content(tree).get(f"{offer.base}/a") in (None, b"of an earlier attempt")
    await files.have(tree, offer.entries(), offer.fetch)
    assert content(tree) == offer.contents


async def test_files_of_an_earlier_attempt_that_the_server_does_not_have_go(files, data_dir):
    offer = Offer(a=b"1")
    tree = tree_of(data_dir)
    for name in (offer.base, "jobs/j/streams", "jobs/k"):
        (data_dir / name).mkdir(parents=True)
    (data_dir / offer.base / "old").write_bytes(b"x")
    (data_dir / "jobs/j/streams/worker-0.stdout").write_bytes(b"x")
    (data_dir / "jobs/k/other").write_bytes(b"of another job")
    await files.have(tree, offer.entries(), offer.fetch)
    assert content(tree) == offer.contents
    assert (data_dir / "jobs/k/other").exists()


async def test_a_file_that_is_not_needed_stays_or_stays_away(files, data_dir):
    """The server has it, the attempt goes on without it."""
    tree = tree_of(data_dir)
    (data_dir / RESULT.format("j")).mkdir(parents=True)
    (data_dir / RESULT.format("j") / "here").write_bytes(b"x")
    entries = [JobFile(path=f"{RESULT.format('j')}/{name}", size=1, mode=0o600) for name in ("here", "away")]
    await files.have(tree, entries, Offer().fetch)
    assert [os.path.basename(path) for path in content(tree)] == ["here"]


async def test_a_file_takes_the_place_of_a_folder_of_an_earlier_attempt(files, data_dir):
    offer = Offer(a=b"1")
    (data_dir / offer.base / "a" / "b").mkdir(parents=True)
    (data_dir / offer.base / "a" / "b" / "c").write_bytes(b"x")
    await files.have(tree_of(data_dir), offer.entries(), offer.fetch)
    assert content(tree_of(data_dir)) == offer.contents


@pytest.mark.parametrize("place", ["folder", "file", "unfinished"])
async def test_a_link_of_an_earlier_attempt_leads_nowhere(files, data_dir, tmp_path, place):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"not yours")
    offer = Offer(**{"x/file" if place == "folder" else "file": b"1"})
    base = data_dir / offer.base
    base.mkdir(parents=True)
    link = {"folder": base / "x", "file": base / "file", "unfinished": job_trees.unfinished(base / "file")}[place]
    link.symlink_to(tmp_path / "outside" / ("" if place == "folder" else "file"))
    for number in range(2):
        # The first time it is fetched, and then copied from what is kept.
        await files.have(tree_of(data_dir), offer.entries(), offer.fetch)
        assert len(offer.asked) == 1, number
        assert content(tree_of(data_dir)) == offer.contents
        assert (tmp_path / "outside" / "file").read_bytes() == b"not yours"
        assert os.listdir(tmp_path / "outside") == ["file"]
        shutil.rmtree(base)
        base.mkdir()
        link.symlink_to(tmp_path / "outside" / ("" if place == "folder" else "file"))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "jobs/k/x", "jobs/j/../k/x", "control/server.json", "jobs/j/launch.json", "cache/x"]
)
async def test_a_path_that_is_not_the_jobs_is_refused_before_anything_is_written(files, data_dir, path):
    offer = Offer(a=b"1")
    entries = [*offer.entries(), JobFile(path=path, size=1, mode=0o600, digest="0" * 64)]
    with pytest.raises(InvalidRequest):
        await files.have(tree_of(data_dir), entries, offer.fetch)
    assert everything(data_dir) == []
    assert offer.asked == []


async def test_what_was_unused_for_longest_is_removed_first(data_dir):
    files = HostFiles(data_dir, 25)
    digests = []
    for number in range(3):
        offer = Offer(f"j{number}", a=bytes([number]) * 10)
        await files.have(tree_of(data_dir, f"j{number}"), offer.entries(), offer.fetch)
        digests += [entry.digest for entry in offer.entries()]
        os.utime(data_dir / "cache" / digests[-1], (number, number))
    again = Offer("again", a=bytes([0]) * 10)
    await files.have(tree_of(data_dir, "again"), again.entries(), again.fetch)
    assert again.asked == []
    files.trim()
    assert kept(data_dir) == {digests[0], digests[2]}
    files.trim()
    assert kept(data_dir) == {digests[0], digests[2]}


async def test_two_jobs_may_fetch_the_same_at_once(files, data_dir):
    offers = [Offer(f"j{number}", a=b"same", b=b"same") for number in range(4)]
    await asyncio.gather(
        *(files.have(tree_of(data_dir, f"j{each}"), offer.entries(), offer.fetch) for each, offer in enumerate(offers))
    )
    for each, offer in enumerate(offers):
        assert content(tree_of(data_dir, f"j{each}")) == offer.contents
    assert len(kept(data_dir)) == 1


async def test_a_host_that_gives_up_leaves_nothing_running(files, data_dir):
    offer, waiting = Offer(a=b"1", b=b"2"), asyncio.Event()

    async def never(path, offset):
        waiting.set()
        await asyncio.Event().wait()

    having = asyncio.create_task(files.have(tree_of(data_dir), offer.entries(), never))
    await waiting.wait()
    having.cancel()
    await asyncio.wait({having})
    await until_async(lambda: len(asyncio.all_tasks()) == 1)
    assert content(tree_of(data_dir)) == {}
