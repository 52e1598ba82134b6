"""Data sets: where they come from, what a job of one finds, and when one can go."""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from edt_sdk.schemas.catalogue import NewDataset
from edt_sdk.schemas.errors import Conflict, InvalidRequest, NotFound, PackageError, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_server.service import open_service
from tests.packages import packed
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


def archive(path, files, *, kind="tar"):
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, content in files.items():
                out.writestr(name, content)
        return path
    path.write_bytes(packed(files))
    return path


@pytest.fixture
def script(tmp_path):
    """A package whose job says where its data are, and waits."""
    code = b"import os, time\nprint(os.environ['DATA_DIR'], sorted(os.listdir(os.environ['DATA_DIR'])), flush=True)\n"
    return archive(tmp_path / "script.tar.gz", {"train.py": code + b"time.sleep(600)\n"})


def spec(**changes):
    return JobSpec(**{"name": "job", "main": "train.py", "max_workers": 1, **changes})


async def first_words(service, job):
    said = service.paths(await service.mine("ann", job)).streams_dir / "driver.stdout"
    await until_async(lambda: said.exists() and b"\n" in said.read_bytes(), "the script's first words")
    return said.read_text()


async def test_a_folder_of_the_data_folder_is_used_where_it_lies(service, data_fs, script):
    datasets = service.catalogue.datasets
    made = await datasets.add("ann", NewDataset(name="digits", path="mnist", train="train", description="Ziffern"))
    assert (made.mode, made.path, made.place) == ("reference", "mnist", str(data_fs / "mnist"))
    assert (made.files, made.size, made.jobs, made.trouble) == (2, 11, 0, "")
    assert await datasets.list("ann") == [made]
    view = await service.submit("ann", spec(dataset="digits"), script)
    assert view.dataset == "digits"
    assert await first_words(service, view.id) == f"{data_fs / 'mnist'} ['notes.txt', 'train']\n"
    details = await datasets.get("ann", "digits")
    assert details.dataset.jobs == 1
    assert [job.id for job in details.jobs] == [view.id]
    assert [file.name for file in details.files] == ["notes.txt", "train/a.csv"]
    # Nothing that the job needs goes with it.
    await datasets.delete("ann", "digits")
    assert (data_fs / "mnist/notes.txt").exists()
    assert await datasets.list("ann") == []


@pytest.mark.parametrize("path", ["mnist", "single.csv"])
async def test_a_copy_outlives_what_it_was_made_of(service, data_fs, script, path):
    made = await service.catalogue.datasets.add("ann", NewDataset(name="digits", path=path, copy=True))
    assert (made.mode, made.path) == ("copy", "")
    (data_fs / "mnist/notes.txt").unlink()
    (data_fs / "single.csv").unlink()
    view = await service.submit("ann", spec(dataset="digits"), script)
    there = "['notes.txt', 'train']" if path == "mnist" else "['single.csv']"
    assert await first_words(service, view.id) == f"{made.place} {there}\n"


async def test_a_copy_stays_while_a_job_needs_it(service, script):
    datasets = service.catalogue.datasets
    made = await datasets.add("ann", NewDataset(name="digits", path="mnist", copy=True))
    view = await service.submit("ann", spec(dataset="digits"), script)
    with pytest.raises(Conflict, match=view.id):
        await datasets.delete("ann", "digits")
    await service.stop_job("ann", view.id)
    await until_async(lambda: not service.busy, "the job's end")
    await datasets.delete("ann", "digits")
    assert not list(Path(made.place).parent.parent.iterdir())
    assert (await service.job("ann", view.id)).dataset == "digits"
    with pytest.raises(Unprocessable, match=r"data set digits that job .* reads was deleted"):
        await service.resume("ann", view.id)


@pytest.mark.parametrize("kind", ["tar", "zip"])
async def test_an_archive_is_unpacked(service, tmp_path, kind):
    files = {"raw/images": b"abc", "labels.csv": b"1"}
    upload = archive(tmp_path / "upload", files, kind=kind)
    name = "digits.zip" if kind == "zip" else "digits.tar.gz"
    await service.catalogue.datasets.add("ann", NewDataset(name="digits", type="CSV"), upload, name)
    details = await service.catalogue.datasets.get("ann", "digits")
    assert [(file.name, file.size) for file in details.files] == [("labels.csv", 1), ("raw/images", 3)]
    assert upload.exists()


async def test_any_other_upload_is_one_file(service, tmp_path):
    upload = archive(tmp_path / "upload", {"x": b"1"}, kind="zip")  # an .npz is a zip, and wanted as it is
    await service.catalogue.datasets.add("ann", NewDataset(name="mnist"), upload, "some/../where\\mnist.npz")
    details = await service.catalogue.datasets.get("ann", "mnist")
    assert [file.name for file in details.files] == ["mnist.npz"]
    assert details.files[0].size == upload.stat().st_size


@pytest.mark.parametrize("name", ["..", ".", "", "a\0b", "a/", "x" * 300, "/", "a\nb"])
async def test_a_file_that_is_called_what_none_can_be(service, tmp_path, name):
    (tmp_path / "upload").write_bytes(b"1")
    await service.catalogue.datasets.add("ann", NewDataset(name="one"), tmp_path / "upload", name)
    (file,) = (await service.catalogue.datasets.get("ann", "one")).files
    assert file.name == ("a" if name == "a/" else "data")


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"path": "nothing"}, NotFound, "There is no nothing .*mnist, single.csv"),
        ({"path": "../.."}, InvalidRequest, "outside of the server's data folder"),
        ({"path": "/etc"}, InvalidRequest, "outside of the server's data folder"),
        ({"path": "mnist/../../elsewhere"}, InvalidRequest, "outside"),
        ({"path": "single.csv"}, Unprocessable, "is a file"),
        ({}, InvalidRequest, "from an upload or from a path"),
        ({"path": "mnist", "train": "tests"}, InvalidRequest, "no tests in the data set"),
        ({"path": "mnist", "train": "../.."}, InvalidRequest, "inside the folder"),
        ({"path": "mnist", "type": "Images"}, Unprocessable, "no type of data set.*Any, CSV"),
        ({"path": "mnist", "name": "a/b"}, InvalidRequest, "is no name"),
        ({"path": "mnist", "name": ""}, InvalidRequest, "is no name"),
        ({"path": "mnist\0"}, InvalidRequest, "NUL"),
    ],
)
async def test_what_cannot_be_registered(service, settings, changes, error, text):
    with pytest.raises(error) as caught:
        await service.catalogue.datasets.add("ann", NewDataset(**{"name": "digits", **changes}))
    assert re.search(text, f"{caught.value} {caught.value.hint}")
    assert await service.catalogue.datasets.list("ann") == []
    assert list((settings.data_dir / "catalogue").glob("*/*")) == []


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("x.zip", b"no zip", "not a readable zip"),
        ("x.tar.gz", b"no tar", "not a readable tar"),
        ("x.tar", "outside", "leads out of the package"),
        ("x.zip", "outside", "leads out of the package"),
        ("x.zip", "huge", "at most 1000000 of 1.0 MiB|at most"),
        ("x.tar.gz", "huge", "more than 1048576 bytes"),
    ],
)
async def test_an_upload_that_is_refused_leaves_nothing(service, settings, tmp_path, name, content, text):
    upload = tmp_path / "upload"
    if isinstance(content, bytes):
        upload.write_bytes(content)
    else:
        files = {"../x": b"1"} if content == "outside" else {"zeros": bytes(3 << 20)}
        archive(upload, files, kind="zip" if name.endswith(".zip") else "tar")
    with pytest.raises(PackageError, match=text) as caught:
        await service.catalogue.datasets.add("ann", NewDataset(name="digits"), upload, name)
    assert "data folder" in caught.value.hint
    assert list((settings.data_dir / "catalogue").glob("*/*")) == []


async def test_a_name_is_the_owners_alone(service):
    datasets = service.catalogue.datasets
    await datasets.add("ann", NewDataset(name="digits", path="mnist"))
    with pytest.raises(Conflict, match="You have a data set 'digits' already"):
        await datasets.add("ann", NewDataset(name="digits", path="mnist"))
    other = await datasets.add("ben", NewDataset(name="digits", path="mnist/train"))
    assert await datasets.list("ben") == [other]
    await datasets.delete("ben", "digits")
    assert [each.path for each in await datasets.list("ann")] == ["mnist"]
    with pytest.raises(NotFound, match="no data set 'digits'") as caught:
        await datasets.get("ben", "digits")
    assert caught.value.hint == "You have no data set yet."


async def test_a_folder_that_is_gone_is_said_and_refused(service, data_fs, script):
    datasets = service.catalogue.datasets
    await datasets.add("ann", NewDataset(name="digits", path="mnist"))
    (data_fs / "mnist").rename(data_fs / "moved")
    (shown,) = await datasets.list("ann")
    assert "There is no mnist" in shown.trouble
    assert (await datasets.get("ann", "digits")).files == ()
    with pytest.raises(Unprocessable, match="cannot be used now"):
        await service.submit("ann", spec(dataset="digits"), script)
    with pytest.raises(NotFound, match="no data set 'letters'"):
        await service.submit("ann", spec(dataset="letters"), script)


async def test_links_of_the_data_folder_are_followed_once(service, data_fs, tmp_path):
    (tmp_path / "disk2").mkdir()
    (tmp_path / "disk2" / "big.bin").write_bytes(b"12345")
    (data_fs / "big").symlink_to(tmp_path / "disk2")
    (tmp_path / "disk2" / "again").symlink_to(tmp_path / "disk2")
    (tmp_path / "disk2" / "nowhere").symlink_to(tmp_path / "nothing")
    for copy in (False, True):
        made = await service.catalogue.datasets.add("ann", NewDataset(name=f"big-{copy}", path="big", copy=copy))
        assert (made.files, made.size) == (1, 5)


async def test_a_folder_that_cannot_be_read(service, data_fs):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    (data_fs / "mnist").chmod(0)
    try:
        with pytest.raises(Unprocessable, match="cannot be read"):
            await service.catalogue.datasets.add("ann", NewDataset(name="digits", path="mnist"))
    finally:
        (data_fs / "mnist").chmod(0o755)


async def test_without_a_data_folder_files_are_uploaded(settings, tmp_path):
    async with open_service(replace(settings, data_fs="")) as service:
        with pytest.raises(Unprocessable, match="no data folder") as caught:
            await service.catalogue.datasets.add("ann", NewDataset(name="digits", path="mnist"))
        assert "Upload it" in caught.value.hint
        upload = archive(tmp_path / "upload", {"a": b"1"})
        made = await service.catalogue.datasets.add("ann", NewDataset(name="digits"), upload, "a.tar.gz")
        assert made.files == 1


async def test_what_a_client_says_is_registered_is_thrown_away(service, script):
    from edt_sdk.schemas.registered import Registered

    forged = Registered(dataset="../../other", copied=True, model="theirs", model_name="theirs")
    view = await service.submit("ann", spec(registered=forged), script)
    row = await service.mine("ann", view.id)
    assert row.spec.registered is None
    assert (view.dataset, view.model) == ("", "")


async def test_a_data_set_that_goes_while_its_job_comes(service, script, monkeypatch):
    """Deleted between the look-up and the commit: the job is refused, and leaves nothing."""
    datasets = service.catalogue.datasets
    await datasets.add("ann", NewDataset(name="digits", path="mnist", copy=True))
    pinned = await datasets.registered("ann", spec(dataset="digits"), None)
    await datasets.delete("ann", "digits")

    async def as_before(*_args):
        return pinned

    monkeypatch.setattr(datasets, "registered", as_before)
    with pytest.raises(NotFound, match="digits was deleted"):
        await service.submit("ann", spec(dataset="digits"), script)
    assert await service.jobs("ann") == []
