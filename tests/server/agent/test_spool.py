"""What a job writes on a host arrives on the server, byte for byte, whatever becomes of the connection."""

from __future__ import annotations

import asyncio
import errno
import os
import random

import pytest

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent import spool as module
from edt_server.agent.spool import Spool
from edt_server.files.job_trees import Digests, JobTree
from edt_server.fleet import intake

pytestmark = pytest.mark.asyncio
ROOM = 3
LOG = "jobs/j/training-0.commits.jsonl"
CHECKPOINTS = "results/ann/batchworkdir/j/checkpoint/training-0"
RESULTS = "results/ann/batchworkdir/j"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts and marks of a few bytes, no pauses, and one thread, so that a seed gives one story."""

    async def here(call, *arguments):
        await asyncio.sleep(0)
        found = call(*arguments)
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(wire, "PART", 64)
    monkeypatch.setattr(module, "_MARK", 16)
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(module, "_REFUSED", 0.0)
    monkeypatch.setattr(module, "_SHARE", 1e9)
    monkeypatch.setattr(module.asyncio, "to_thread", here)


def tree_at(folder):
    tree = JobTree(JobPaths(folder, "ann", "j"))
    for root in tree.roots:
        root.mkdir(parents=True)
    return tree


def content(tree):
    return {path: (tree.paths.data_dir / path).read_bytes() for path, _ in tree.files()}


class Link:
    """The connection of a host to its server, which can be cut before a part is written, or before it is answered."""

    def __init__(self, folder, *, supervises=True, engine=True):
        self.here, self.there = tree_at(folder / "host"), tree_at(folder / "server")
        self.sender = intake.Sender("h", self.there, supervises, engine)
        self.under_way = []
        self.answers = []
        self.sent = []
        self.connected = asyncio.Event()
        self.connected.set()
        self.room = asyncio.Semaphore(ROOM)
        self.spool = Spool(self.here, 1, supervises, engine, self.send, self.room, self.connected)
        self.task = asyncio.create_task(self.spool.run())

    def send(self, message, data):
        if not self.connected.is_set():
            return False
        self.sent.append(message)
        self.under_way.append((message, data))
        assert len(self.under_way) + len(self.answers) <= ROOM, "more is under way than there is room for"
        return True

    def write(self):
        """The server writes the next part."""
        if self.under_way:
            self.answers += intake.take([(self.sender, *self.under_way.pop(0))])

    def answer(self):
        if self.answers:
            self.spool.taken(self.answers.pop(0))

    def cut(self):
        self.connected.clear()
        self.under_way.clear()
        self.answers.clear()
        self.spool.disconnected()

    async def flushed(self):
        """Answer everything until all is there."""
        self.connected.set()
        flushed = asyncio.create_task(self.spool.flushed())
        for _ in range(200_000):
            self.write()
            self.answer()
            await asyncio.sleep(0)
            if flushed.done():
                return
        pytest.fail("never flushed")

    async def close(self):
        self.task.cancel()
        await asyncio.wait({self.task})
        assert self.room._value == ROOM, "all of the room is free again"


@pytest.fixture
def folder(tmp_path):
    return tmp_path


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


class Job:
    """A job that writes its log and its checkpoints in order, and other files as it likes."""

    def __init__(self, tree, chance):
        self.tree, self.chance = tree, chance
        self.root = tree.paths.data_dir
        self.life, self.updates = 0, 0
        (self.root / CHECKPOINTS).mkdir(parents=True)
        self.changes = [
            self.commit,
            self.commit,
            self.checkpoint,
            self.go_back,
            self.append,
            self.cut_and_append,
            self.replace,
            self.rewrite,
            self.change_and_append,
            self.remove,
            self.many,
            self.folder_or_file,
            self.oddities,
        ]

    def change(self):
        self.chance.choice(self.changes)()

    def some(self, most=300):
        return self.chance.choice([b"a", b"b", b"\n"]) * self.chance.randrange(1, most) + self.chance.randbytes(3)

    def file(self):
        place = self.root / RESULTS / self.chance.choice(["a", "b", "log/c", "model/train/d"])
        if place.is_dir():
            place = place / "inner"
        for above in reversed(place.relative_to(self.root / RESULTS).parents):
            if (self.root / RESULTS / above).is_file():
                (self.root / RESULTS / above).unlink()
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.write_bytes(self.some())
        return place

    def commit(self):
        with (self.root / LOG).open("ab") as file:
            self.updates += 1
            file.write(b"%d in life %d\n" % (self.updates, self.life))

    def checkpoint(self):
        if not self.updates:
            return
        place = self.root / CHECKPOINTS / f"update-{self.updates}.ckpt"
        line = (self.root / LOG).read_bytes().splitlines(keepends=True)[-1]
        beside = place.with_suffix(".tmp")
        beside.write_bytes(line * self.chance.randrange(1, 20))
        os.replace(beside, place)
        numbers = sorted(int(each.stem.partition("-")[2]) for each in place.parent.glob("*.ckpt"))
        for old in numbers[:-2]:
            (place.parent / f"update-{old}.ckpt").unlink()

    def go_back(self):
        """All workers are lost: the log is cut to the newest checkpoint, and other lines follow."""
        numbers = [int(each.stem.partition("-")[2]) for each in (self.root / CHECKPOINTS).glob("*.ckpt")]
        if numbers:
            self.life, self.updates = self.life + 1, max(numbers)
            lines = (self.root / LOG).read_bytes().splitlines(keepends=True)
            with (self.root / LOG).open("r+b") as file:
                file.truncate(sum(map(len, lines[: self.updates])))

    def append(self):
        with self.file().open("ab") as file:
            file.write(self.some())

    def cut_and_append(self):
        place = self.file()
        with place.open("r+b") as file:
            file.truncate(self.chance.randrange(place.stat().st_size + 1))
            file.seek(0, os.SEEK_END)
            file.write(self.some())

    def replace(self):
        place = self.file()
        beside = place.with_name(f"{place.name}.tmp")
        beside.write_bytes(self.some() * self.chance.choice([1, 1, 5]))
        os.replace(beside, place)

    def rewrite(self):
        place = self.file()
        with place.open("r+b") as file:
            file.seek(self.chance.randrange(place.stat().st_size + 1))
            file.write(b"!"[: place.stat().st_size - file.tell()])

    def change_and_append(self):
        """As formats do that have a table of contents at their beginning."""
        with self.file().open("r+b") as file:
            file.write(self.chance.randbytes(1))
            file.seek(0, os.SEEK_END)
            file.write(self.some())

    def remove(self):
        self.file().unlink()

    def many(self):
        folder = self.root / RESULTS / "many"
        folder.mkdir(exist_ok=True)
        for number in range(10):
            (folder / str(number)).write_bytes(self.some(5))

    def folder_or_file(self):
        place = self.root / RESULTS / "either"
        if place.is_file():
            place.unlink()
            (place / "deep").mkdir(parents=True)
            (place / "deep" / "file").write_bytes(self.some())
        elif place.is_dir():
            (place / "deep" / "file").unlink()
            (place / "deep").rmdir()
            place.rmdir()
            place.write_bytes(self.some())
        else:
            place.write_bytes(b"x")

    def oddities(self):
        (self.root / RESULTS / os.fsdecode(b"\xff")).write_bytes(b"its name is no text")
        (self.root / RESULTS / ("n" * 255)).write_bytes(self.some())
        (self.root / RESULTS / "empty").write_bytes(b"")
        (self.root / RESULTS / "file.lock").write_bytes(b"")


def check_order(tree):
    """No checkpoint is on the server without the line that was written before it."""
    log = tree.paths.data_dir / LOG
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    for path in (tree.paths.data_dir / CHECKPOINTS).glob("*.ckpt"):
        assert path.read_bytes().splitlines(keepends=True)[0] in lines, f"{path.name} came before its line"


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_happens_the_server_has_the_same_bytes_in_the_end(folder, seed):
    chance = random.Random(seed)
    link = Link(folder)
    job = Job(link.here, chance)
    trouble = chance.choice([0, 1, 3])
    steps = [job.change, job.change, link.write, link.write, link.answer, link.answer]
    steps += [link.cut] * trouble + [link.connected.set] * 2 * trouble
    for _ in range(400):
        chance.choice(steps)()
        check_order(link.there)
        for _ in range(chance.randrange(8)):
            await asyncio.sleep(0)
        if link.task.done():
            link.task.result()
    await link.flushed()
    assert content(link.there) == content(link.here)
    check_order(link.there)
    await link.close()


async def test_a_file_that_has_grown_is_sent_from_where_it_was(folder):
    link = Link(folder)
    log = link.here.paths.data_dir / LOG
    log.write_bytes(b"x" * 100)
    await link.flushed()
    link.sent.clear()
    with log.open("ab") as file:
        file.write(b"yyy")
    await link.flushed()
    assert [(each.offset, each.whole) for each in link.sent] == [(100, False)]
    await link.close()


async def test_what_did_not_change_is_not_sent_again(folder):
    link = Link(folder)
    place = link.here.paths.result_dir / "file"
    place.write_bytes(b"x")
    await link.flushed()
    link.sent.clear()
    os.utime(place)
    link.cut()
    await link.flushed()
    assert link.sent == []
    await link.close()


async def test_a_new_agent_sends_only_what_the_server_lacks(folder):
    link = Link(folder)
    result = link.here.paths.result_dir
    names = ("same", "grown", "changed", "new", "of the same size")
    for name in names:
        (result / name).write_bytes(name.encode() * 50)
    await link.flushed()
    await link.close()
    (link.there.paths.result_dir / "new").unlink()
    with (result / "grown").open("ab") as file:
        file.write(b"more")
    (result / "changed").write_bytes(b"other")
    (result / "of the same size").write_bytes(b"OF THE SAME SIZE" * 50)
    digests, root = Digests(), link.there.paths.data_dir
    entries = [digests.entry(root, path, link.there.within(root / path)) for path, _ in link.there.files()]
    link.sent.clear()
    link.spool = Spool(link.here, 1, True, True, link.send, link.room, link.connected)
    link.spool.compare(entries, Digests())
    link.task = asyncio.create_task(link.spool.run())
    await link.flushed()
    sent = {(os.path.basename(each.path), each.whole) for each in link.sent}
    assert sent == {("grown", False), ("changed", True), ("new", True), ("of the same size", True)}
    assert content(link.there) == content(link.here)
    await link.close()


async def test_files_that_only_the_server_has_stay_there(folder):
    """The host did not need them, which is no sign that they were removed."""
    link = Link(folder)
    (link.there.paths.result_dir / "old").write_bytes(b"x")
    link.spool.compare([wire.JobFile(path=f"{RESULTS}/old", size=1, mode=0o600)], Digests())
    (link.here.paths.result_dir / "new").write_bytes(b"x")
    await link.flushed()
    assert set(content(link.there)) == {f"{RESULTS}/old", f"{RESULTS}/new"}
    await link.close()


async def test_a_member_sends_what_the_supervisors_host_does_not_write(folder):
    link = Link(folder, supervises=False)
    for path in (LOG, f"{RESULTS}/model/train/x.pth", f"{RESULTS}/mine", "jobs/j/streams/worker-1.stdout"):
        place = link.here.paths.data_dir / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    await link.flushed()
    assert set(content(link.there)) == {f"{RESULTS}/mine", "jobs/j/streams/worker-1.stdout"}
    await link.close()


async def test_after_a_refusal_nothing_more_is_sent(folder):
    link = Link(folder)
    link.sender = intake.Sender("h", refused="Attempt 2 has taken the place of attempt 1.")
    for number in range(10):
        (link.here.paths.result_dir / str(number)).write_bytes(b"x" * 200)
    await link.flushed()
    assert link.spool.refused == "Attempt 2 has taken the place of attempt 1."
    assert content(link.there) == {}
    await asyncio.wait_for(link.task, 10)
    sent = len(link.sent)
    (link.here.paths.result_dir / "late").write_bytes(b"x")
    await turns()
    assert len(link.sent) == sent <= ROOM
    await link.close()


async def test_a_file_that_cannot_be_read_does_not_hold_up_the_others(folder, monkeypatch):
    link = Link(folder)
    for name in ("a", "locked", "z"):
        (link.here.paths.result_dir / name).write_bytes(b"x")
    real = module.open_regular

    def refused(place, **others):
        if place.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(place, **others)

    monkeypatch.setattr(module, "open_regular", refused)
    await link.flushed()
    assert set(content(link.there)) == {f"{RESULTS}/a", f"{RESULTS}/z"}
    monkeypatch.undo()
    await link.close()


async def test_nobody_waits_for_a_spool_that_has_ended(folder):
    link = Link(folder)
    await turns()
    link.task.cancel()
    await asyncio.wait({link.task})
    await asyncio.wait_for(link.spool.flushed(), 10)


async def test_a_missing_beginning_is_sent_before_the_server_counts_as_up_to_date(folder):
    link = Link(folder)
    log, other = link.here.paths.data_dir / LOG, link.there.paths.data_dir / LOG
    log.write_bytes(b"x" * 100)
    await link.flushed()
    other.write_bytes(b"lost")
    with log.open("ab") as file:
        file.write(b"y")
    (link.here.paths.data_dir / CHECKPOINTS).mkdir(parents=True)
    checkpoint = f"{CHECKPOINTS}/update-1.ckpt"
    (link.here.paths.data_dir / checkpoint).write_bytes(b"z")
    link.sent.clear()
    await link.flushed()
    assert content(link.there) == content(link.here)
    order = [each.path for each in link.sent]
    assert order.index(checkpoint) > max(number for number, path in enumerate(order) if path == LOG)
    await link.close()


async def test_the_room_is_for_all_jobs_and_a_lost_connection_gives_it_back(folder):
    link = Link(folder)
    (link.here.paths.result_dir / "large").write_bytes(b"x" * 64 * 20)
    await turns(50)
    assert len(link.under_way) == ROOM
    assert link.room.locked()
    for _ in range(3):
        link.cut()
        await turns(3)
        link.connected.set()
        await turns(50)
        assert len(link.under_way) == ROOM
    await link.flushed()
    assert content(link.there) == content(link.here)
    await link.close()


async def test_a_connection_that_is_back_at_once_gets_the_file_from_its_beginning(folder):
    """While a part waits for room, one connection ends and the next one begins."""
    link = Link(folder)
    (link.here.paths.result_dir / "large").write_bytes(bytes(range(256)) * 5)
    await turns(50)
    link.cut()
    link.connected.set()
    await link.flushed()
    assert content(link.there) == content(link.here)
    await link.close()


@pytest.mark.parametrize("seed", range(20))
async def test_a_message_that_is_refused_while_the_connection_lives_leaves_no_part_uncounted(tmp_path, seed):
    story = random.Random(seed)

    class Refusing(Link):
        def send(self, message, data):
            return story.random() > 0.2 and super().send(message, data)

        def answer(self):
            if story.random() < 0.1:
                super().answer()

    link = Refusing(tmp_path)
    for number in range(6):
        path = link.here.paths.data_dir / f"{RESULTS}/file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(story.randbytes(story.randrange(400)))
    await link.flushed()
    assert content(link.there) == content(link.here)
    await link.close()
