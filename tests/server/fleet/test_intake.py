"""What a host may write of a job's files on the server, and that nothing else changes there."""

from __future__ import annotations

import asyncio
import os
import stat
from itertools import chain

import msgspec
import pytest

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.files.job_trees import JobTree
from edt_server.fleet import intake
from tests.server.fleet.machines import joined
from tests.waiting import until_async

JOB, RESULT = "jobs/j", "results/ann/batchworkdir/j"


@pytest.fixture
def tree(tmp_path):
    """A job's tree on the server, with what is not the job's beside it."""
    root = tmp_path / "data"
    for name in ("jobs/j", "jobs/other", RESULT, "results/ann/batchworkdir/other", "control"):
        (root / name).mkdir(parents=True)
    for name in ("jobs/j/launch.json", "jobs/other/file", "control/server.key", f"{RESULT}-2"):
        (root / name).write_text("not yours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("not yours")
    return JobTree(JobPaths(root, "ann", "j"))


@pytest.fixture
def home(tree):
    return intake.Sender("h", tree, supervises=True)


@pytest.fixture
def member(tree):
    return intake.Sender("m", tree)


def part(path, *, offset=0, whole=True, last=True, mode=0o600):
    return wire.FilePart(job="j", attempt=1, path=path, offset=offset, mode=mode, whole=whole, last=last)


def gone(path):
    return wire.Gone(job="j", attempt=1, path=path)


def take(sender, *parts):
    return intake.take([(sender, *(each if isinstance(each, tuple) else (each, b""))) for each in parts])


def content(folder):
    """Every file below a folder, and every link."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }


def read(tree, path):
    return (tree.paths.data_dir / path).read_bytes()


def test_a_file_appears_as_a_whole(tree, home):
    path = f"{RESULT}/deep/er/file"
    first, second = part(path, last=False, mode=0o755), part(path, offset=4, last=False)
    answers = take(home, (first, b"one "), (second, b"two "))
    assert [(each.refused, each.again) for each in answers] == [("", False)] * 2
    assert not (tree.paths.data_dir / path).exists()
    assert list(tree.files()) == [], "what is not complete does not travel on"
    take(home, (part(path, offset=8), b"three"))
    assert read(tree, path) == b"one two three"
    assert (tree.paths.data_dir / path).stat().st_mode & stat.S_IXUSR
    assert os.listdir(tree.paths.result_dir / "deep/er") == ["file"]


def test_the_old_content_stays_until_the_new_one_is_complete(tree, home):
    path = f"{RESULT}/file"
    take(home, (part(path), b"old content"))
    take(home, (part(path, last=False), b"new"))
    assert read(tree, path) == b"old content"
    take(home, (part(path, last=False), b"ne"), (part(path, offset=2), b"wer"))
    assert read(tree, path) == b"newer", "of what was sent before a connection was lost nothing is left"


def test_an_empty_file_is_a_file(tree, home):
    take(home, part(f"{RESULT}/empty"))
    assert read(tree, f"{RESULT}/empty") == b""


def test_a_file_that_grows_gets_its_new_bytes(tree, home):
    path = f"{JOB}/training-0.commits.jsonl"
    take(home, (part(path), b"1\n"))
    before = (tree.paths.data_dir / path).stat().st_ino
    take(home, (part(path, offset=2, whole=False), b"2\n"), (part(path, offset=4, whole=False), b"3\n"))
    assert read(tree, path) == b"1\n2\n3\n"
    assert (tree.paths.data_dir / path).stat().st_ino == before, "who reads it goes on reading"
    take(home, (part(path, offset=2, whole=False), b"2\n3\n"))
    assert read(tree, path) == b"1\n2\n3\n", "what is sent again changes nothing"


def test_what_a_lost_answer_left_behind_the_end_is_cut_off(tree, home):
    """It was sent, its answer was lost, and the file was cut and has grown otherwise since."""
    path = f"{RESULT}/log"
    take(home, (part(path), b"kept "), (part(path, offset=5, whole=False), b"a long line"))
    take(home, (part(path, offset=5, whole=False), b"short"))
    assert read(tree, path) == b"kept short"


@pytest.mark.parametrize("there", [None, b"", b"12"])
def test_a_gap_asks_for_the_whole_file(tree, home, there):
    path = f"{RESULT}/log"
    if there is not None:
        take(home, (part(path), there))
    (answer,) = take(home, (part(path, offset=3, whole=False), b"4"))
    assert answer.again
    assert not answer.refused
    (answer,) = take(home, (part(f"{RESULT}/other", offset=3), b"4"))
    assert answer.again, "its beginning was never here"
    assert not (tree.paths.data_dir / f"{RESULT}/other").exists()


def test_a_removed_file_is_removed(tree, home):
    take(home, (part(f"{RESULT}/file"), b"x"))
    answers = take(home, gone(f"{RESULT}/file"), gone(f"{RESULT}/file"), gone(f"{RESULT}/never/there"))
    assert not any(each.refused or each.again for each in answers)
    assert not (tree.paths.result_dir / "file").exists()


def test_who_may_not_write_is_told_why_and_nothing_is_written(tree):
    before = content(tree.paths.data_dir)
    refused = intake.Sender("h", refused="The job is over.")
    answers = take(refused, (part(f"{RESULT}/file"), b"x"), gone(f"{JOB}/launch.json"))
    assert [each.refused for each in answers] == ["The job is over."] * 2
    assert content(tree.paths.data_dir) == before


@pytest.mark.parametrize(
    "path",
    [
        f"{JOB}/streams/worker-1.out",
        f"{JOB}/streams/task-0.err",
        f"{JOB}/streams.index.m.jsonl",
        f"{RESULT}/log/1-j.m/stdout",
        f"{RESULT}/checkpoint/training-0/update-7.ckpt",
    ],
)
def test_what_a_member_writes_is_taken(tree, member, path):
    take(member, (part(path), b"x"))
    assert read(tree, path) == b"x"


@pytest.mark.parametrize(
    "path",
    [
        f"{JOB}/training-0.commits.jsonl",
        f"{JOB}/journal.jsonl",
        f"{JOB}/streams/driver.out",
        f"{JOB}/training-0.payload",
        f"{RESULT}/model/train/model_epoch_final.pth",
        f"{RESULT}/checkpoint/training-0/epoch-1.ckpt",
    ],
)
def test_what_the_supervisors_host_writes_a_member_may_not(tree, home, member, path):
    answers = take(member, (part(path), b"of a member"), gone(path))
    assert not any(each.refused or each.again for each in answers), "it goes on, with what it may write"
    assert not (tree.paths.data_dir / path).exists()
    take(home, (part(path), b"right"))
    take(member, (part(path), b"of a member"), gone(path))
    assert read(tree, path) == b"right"


def test_a_state_that_is_there_already_stays(tree, home, member):
    path = f"{RESULT}/checkpoint/training-0/update-7.ckpt"
    take(home, (part(path), b"state"))
    take(member, (part(path), b"the same state, later"))
    assert read(tree, path) == b"state"


def test_members_of_a_plain_job_write_results(tree):
    plain = intake.Sender("m", tree, engine=False)
    take(plain, (part(f"{RESULT}/model/x.pt"), b"x"), (part(f"{JOB}/journal.jsonl"), b"x"))
    assert read(tree, f"{RESULT}/model/x.pt") == b"x"
    assert not (tree.paths.job_dir / "journal.jsonl").exists()


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "control/server.key",
        "jobs/other/file",
        "jobs/j/../other/file",
        f"{RESULT}/../other/file",
        f"{RESULT}/../../../../control/server.key",
        f"{RESULT}-2",
        "jobs",
        "jobs/j",
        RESULT,
        f"{JOB}/launch.json",
        f"{JOB}/x.lock",
        f"{JOB}/.file.h.edt-part",
        f"{RESULT}/a\0b",
        f"/{RESULT}/file",
    ],
)
def test_a_path_that_leads_elsewhere_changes_nothing(tmp_path, tree, home, path):
    before = content(tmp_path)
    for each in ((part(path), b"x"), (part(path, offset=0, whole=False), b"x"), gone(path)):
        (answer,) = take(home, each)
        assert answer.refused
    assert content(tmp_path) == before


@pytest.mark.parametrize("in_place_of", ["folder", "file"])
@pytest.mark.parametrize("how", ["whole", "append", "gone"])
def test_a_link_of_the_job_leads_nowhere(tmp_path, tree, home, in_place_of, how):
    """A job that ran on the server's machine may have left links there."""
    place = tree.paths.result_dir / "x"
    if in_place_of == "folder":
        place.symlink_to(tmp_path / "outside")
        path = f"{RESULT}/x/file"
    else:
        place.symlink_to(tmp_path / "outside" / "file")
        path = f"{RESULT}/x"
    message = {
        "whole": (part(path), b"changed"),
        "append": (part(path, whole=False), b"changed"),
        "gone": gone(path),
    }[how]
    (answer,) = take(home, message)
    assert not answer.refused, "the rest of the job's files is taken as before"
    assert content(tmp_path / "outside") == {"file": b"not yours"}
    if answer.again:
        (answer,) = take(home, (part(path), b"changed"))
    if how != "gone":
        assert not answer.again
        assert read(tree, path) == b"changed"
    assert content(tmp_path / "outside") == {"file": b"not yours"}


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_waits_for_who_opens_a_pipe(tree, home, whole):
    os.mkfifo(tree.paths.result_dir / "pipe")
    (answer,) = take(home, (part(f"{RESULT}/pipe", whole=whole), b"x"))
    assert answer.again is not whole
    take(home, (part(f"{RESULT}/pipe"), b"x"))
    assert read(tree, f"{RESULT}/pipe") == b"x"


def test_a_file_takes_the_place_of_a_folder_and_a_folder_that_of_a_file(tree, home):
    take(home, (part(f"{RESULT}/a/b/c"), b"1"), (part(f"{RESULT}/d"), b"2"))
    # As a spool sends them: what is new, and then what is gone.
    answers = take(home, (part(f"{RESULT}/a"), b"3"), (part(f"{RESULT}/d/e"), b"4"), gone(f"{RESULT}/a/b/c"))
    assert not any(each.refused or each.again for each in answers)
    assert content(tree.paths.result_dir) == {"a": b"3", "d/e": b"4"}


def test_a_member_takes_no_others_place(tree, home, member):
    take(home, (part(f"{RESULT}/a/b"), b"1"), (part(f"{RESULT}/d"), b"2"))
    answers = take(member, (part(f"{RESULT}/a"), b"3"), (part(f"{RESULT}/d/e"), b"4"), gone(f"{RESULT}/d/e"))
    assert not any(each.refused for each in answers)
    assert content(tree.paths.result_dir) == {"a/b": b"1", "d": b"2"}


def test_names_that_no_file_can_have_leave_the_others_alone(tree, home):
    answers = take(home, (part(f"{RESULT}/{'x' * 256}"), b"1"), (part(f"{RESULT}/{'y' * 255}"), b"2"))
    assert not any(each.again for each in answers)
    assert content(tree.paths.result_dir) == {"y" * 255: b"2"}


def test_a_full_disk_answers_nothing(tree, home, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        take(home, (part(f"{RESULT}/file"), b"x"))


# --- over a connection ------------------------------------------------------------------------------------------------


@pytest.fixture
def result(placed):
    return f"results/ann/batchworkdir/{placed.job_id}"


def of(placed, message):
    return msgspec.structs.replace(message, job=placed.job_id)


async def answered(machine, count):
    await until_async(lambda: len(machine.got(wire.Taken)) == count, f"{count} answers", 30)
    return machine.got(wire.Taken)


@pytest.mark.asyncio
async def test_parts_are_answered_on_every_connection(server, placed, result):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    for number in range(4):
        machine.say(of(placed, part(f"{result}/file-{number}")), b"x")
        (answer,) = await answered(machine, 1)
        assert not answer.refused
        assert (server.settings.data_dir / f"{result}/file-{number}").read_bytes() == b"x"
        machine.connect()
        for _ in range(5):
            await asyncio.sleep(0)  # whatever waits for parts by now


@pytest.mark.asyncio
async def test_parts_of_a_former_connection_are_not_answered_on_the_next(server, placed, result, monkeypatch):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    real, taken, go_on = intake.take, [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(parts):
        taken.append([each.path for _, each, _ in parts])
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
        return real(parts)

    monkeypatch.setattr(intake, "take", slow)
    machine.say(of(placed, part(f"{result}/first")), b"x")
    await until_async(lambda: taken)
    machine.say(of(placed, part(f"{result}/second")), b"x")
    machine.connect()
    machine.say(of(placed, part(f"{result}/third")), b"x")
    go_on.set()
    await until_async(lambda: machine.got(wire.Taken))
    assert [each.path for each in machine.got(wire.Taken)] == [f"{result}/third"]
    assert taken == [[f"{result}/first"], [f"{result}/third"]], "one batch after the other"


@pytest.mark.asyncio
async def test_who_has_no_part_in_a_job_writes_none_of_its_files(server, placed, result):
    home, other = await joined(server), await joined(server, "b")
    server.fleet.attempts.adopt(placed)
    path = f"{result}/file"
    other.say(of(placed, part(path)), b"x")
    (answer,) = await answered(other, 1)
    assert answer.refused == "The job has no slot on this host."
    home.say(wire.FilePart(job=placed.job_id, attempt=0, path=path, offset=0, mode=0o600, whole=True, last=True), b"x")
    (answer,) = await answered(home, 1)
    assert answer.refused == "Attempt 1 has taken the place of attempt 0."
    server.fleet.attempts.forget(placed.job_id)
    home.say(of(placed, part(path)), b"x")
    assert (await answered(home, 2))[1].refused == "The job is over."
    assert not (server.settings.data_dir / path).exists()


@pytest.mark.asyncio
async def test_a_host_goes_on_by_itself_when_there_is_room_again(server, placed, result, monkeypatch):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    monkeypatch.setattr("edt_server.fleet.attempts._STORE_AWAY", 0.01)
    real, tries = intake.take, chain([OSError(28, "full")] * 3, [None] * 9)

    def full(parts):
        if (wrong := next(tries)) is not None:
            raise wrong
        return real(parts)

    monkeypatch.setattr(intake, "take", full)
    machine.say(of(placed, part(f"{result}/file")), b"x")
    await answered(machine, 1)
    assert (server.settings.data_dir / f"{result}/file").read_bytes() == b"x"


@pytest.mark.asyncio
async def test_a_host_gets_the_files_that_it_was_offered_and_no_others(server, placed, result):
    machine = await joined(server)
    code = server.settings.data_dir / result / "_submitted_code"
    code.mkdir(parents=True)
    (code / "train.py").write_bytes(b"x" * (wire.PART + 3))
    (server.settings.data_dir / "jobs" / placed.job_id / "launch.json").write_text("secret")
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    (prepare,) = await until_async(lambda: machine.got(wire.Prepare))
    assert [(each.path, each.size) for each in prepare.files] == [(f"{result}/_submitted_code/train.py", wire.PART + 3)]
    wanted = [(prepare.files[0].path, 0), (prepare.files[0].path, wire.PART), (f"jobs/{placed.job_id}/launch.json", 0)]
    for path, offset in wanted:
        machine.say(wire.Want(job=placed.job_id, path=path, offset=offset))
    await until_async(lambda: len(machine.got(wire.Chunk)) == 3)
    sent = {
        (each.path, each.offset): (each.lost, *data)
        for to, each, *data in server.channel.sent
        if to == machine.peer and isinstance(each, wire.Chunk)
    }
    assert sent[wanted[0]] == ("", b"x" * wire.PART)
    assert sent[wanted[1]] == ("", b"xxx")
    assert sent[wanted[2]][0] == "It was not offered."
    starting.cancel()
