"""The files of a request as one package: archives under any name, single files, both at once, junk, damage."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from edt_sdk.schemas.errors import PackageError
from edt_server.files.package import unpack
from edt_server.wmla.archive import Part, pack

MACOS = {"._model": b"x", "model/._train.py": b"x", "model/.DS_Store": b"x", "__MACOSX/model/._train.py": b"x"}


def tarred(files, *, mode="w:gz"):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return raw.getvalue()


@pytest.fixture
def packed(tmp_path):
    """What becomes of parts (name, content): the code folder, and every file below the submitted code."""

    def run(*parts, main="train.py", model_dir=""):
        files = []
        for number, (name, content) in enumerate(parts):
            path = tmp_path / f"part-{number}"
            path.write_bytes(content)
            files.append(Part(name, path))
        limits = {"max_files": 100, "max_bytes": 1 << 24}
        made = pack(files, tmp_path, main=main, model_dir=model_dir, **limits)
        target = tmp_path / "code"
        unpack(made.path, target, main=main, code_dir=made.code_dir, **limits)
        found = {str(each.relative_to(target)): each.read_bytes() for each in target.rglob("*") if each.is_file()}
        return made.code_dir, found

    return run


FILES = {"model/train.py": b"main", "model/net/net.py": b"net"}


@pytest.mark.parametrize("mode", ["w:gz", "w"])
@pytest.mark.parametrize("name", ["model.modelDir.tar", "", "anything.bin"])
def test_an_archive_whatever_it_is_called(packed, name, mode):
    assert packed((name, tarred(FILES, mode=mode)), model_dir="model") == ("model", FILES)


def test_the_top_folder_may_have_another_name_than_was_said(packed):
    assert packed(("a.tar", tarred(FILES)), model_dir="pytorch-mnist") == ("model", FILES)


def test_an_archive_made_inside_the_folder_has_no_top_folder(packed):
    files = {".": None, "./train.py": b"main", "./net/net.py": b"net"}
    assert packed(("a.tar", tarred(files)), model_dir="model") == ("", {"train.py": b"main", "net/net.py": b"net"})


def test_finders_files_do_not_count(packed):
    assert packed(("a.tar", tarred({**MACOS, **FILES}))) == ("model", FILES)


def test_of_two_folders_the_one_with_the_script(packed):
    assert packed(("a.tar", tarred({"data/readme": b"x", "code/train.py": b"main"})))[0] == "code"


def test_of_two_scripts_the_one_in_the_folder_that_was_said(packed):
    files = {"data/train.py": b"other", "code/train.py": b"main"}
    assert packed(("a.tar", tarred(files)), model_dir="data")[0] == "data"


def test_single_files_lie_side_by_side(packed):
    assert packed(("train.py", b"main"), ("dir/net.py", b"net")) == ("", {"train.py": b"main", "net.py": b"net"})


def test_a_file_without_a_name_is_the_script(packed):
    assert packed(("", b"main")) == ("", {"train.py": b"main"})


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_files_beside_an_archive_lie_beside_its_code(packed, mode):
    """dlicmd sends an environment's description as a part of its own."""
    found = packed(("m.modelDir.tar", tarred(FILES, mode=mode)), ("env.yaml", b"name: x"), ("big", b"z" * 100_000))
    assert found == ("model", {**FILES, "model/env.yaml": b"name: x", "model/big": b"z" * 100_000})


def test_a_command_needs_no_file(packed, tmp_path):
    made = pack([], tmp_path, main="", model_dir="", max_files=10, max_bytes=10)
    assert made.code_dir == ""
    with tarfile.open(made.path) as tar:
        assert tar.getmembers() == []


def test_a_gzipped_data_file_is_a_file(packed):
    content = gzip.compress(b"1,2,3")
    assert packed(("train.py", b"main"), ("data.csv.gz", content))[1]["data.csv.gz"] == content


@pytest.mark.parametrize(
    ("parts", "options", "text"),
    [
        ([], {}, "brings no file"),
        ([("a.tar", b"")], {}, "not a readable tar"),
        ([("a.tar", tarred(FILES)[:60])], {}, "not a readable tar"),
        ([("", tarred(FILES)[:60])], {}, "not a readable tar"),
        ([("", b"plain text")], {"model_dir": "model"}, "not a readable tar"),
        ([("a.tar", tarred(FILES)), ("b.tgz", tarred(FILES))], {}, "2 archives"),
        ([("a.py", b"1"), ("b/a.py", b"2")], {}, "'a.py' twice"),
        ([("a.tar", tarred(FILES)), ("train.py", b"other")], {}, "twice"),
        ([("a.tar", tarred({"../train.py": b"x"}))], {}, "leads out of the package"),
        ([("a.tar", tarred({"/etc/train.py": b"x"}))], {}, "absolute name"),
    ],
)
def test_what_cannot_be_used_is_said(packed, tmp_path, parts, options, text):
    with pytest.raises(PackageError, match=text):
        packed(*parts, **options)
    assert not (tmp_path / "code").exists()
