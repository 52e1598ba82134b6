"""A package is unpacked whole and safe, or refused with the member's name and nothing left behind."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.errors import PackageError
from edt_server.files.package import unpack


def file(name, data=b"print(1)\n", mode=0o644, **more):
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    for key, value in more.items():
        setattr(member, key, value)
    return member, data


def special(name, kind, target="", **more):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    for key, value in more.items():
        setattr(member, key, value)
    return member, b""


def folder(name):
    return special(name, tarfile.DIRTYPE)


def link(name, target):
    return special(name, tarfile.SYMTYPE, target)


def archive(*members, compress=True):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz" if compress else "w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "job").mkdir()
    return tmp_path


def run(place, data, *, main="train.py", code_dir="", max_files=50, max_bytes=1 << 20):
    source = place / "upload"
    source.write_bytes(data)
    return unpack(
        source, place / "job" / "code", main=main, code_dir=code_dir, max_files=max_files, max_bytes=max_bytes
    )


def refused(place, data, **options):
    """The refusal; checks that nothing was left anywhere."""
    with pytest.raises(PackageError) as caught:
        run(place, data, **options)
    assert sorted(os.listdir(place)) == ["job", "upload"]
    assert os.listdir(place / "job") == []
    return caught.value


@pytest.mark.parametrize("compress", [True, False], ids=["gzip", "plain"])
def test_unpacks_files_folders_and_executables(place, compress):
    package = run(
        place,
        archive(folder("net"), file("net/train.py"), file("net/run.sh", b"#!", 0o4777), compress=compress),
        code_dir="net",
    )
    code = place / "job" / "code" / "net"
    assert package.files == ("net/run.sh", "net/train.py")
    assert package.size == len(b"print(1)\n") + 2
    assert (code / "train.py").read_bytes() == b"print(1)\n"
    assert stat.S_IMODE((code / "run.sh").stat().st_mode) & 0o7122 == 0o100
    assert stat.S_IMODE((code / "train.py").stat().st_mode) & 0o111 == 0


def test_leaves_out_what_finder_adds(place):
    junk = [file("._train.py"), file(".DS_Store"), file("net/._x.py"), file("__MACOSX/._a")]
    assert run(place, archive(file("./train.py"), *junk)).files == ("train.py",)


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ([file("../evil.py")], "../evil.py"),
        ([file("a/../../evil.py")], "a/../../evil.py"),
        ([file("/etc/evil")], "/etc/evil"),
        ([file("ev\nil")], "ev\\nil"),
        ([file("x" * 300)], "xxx"),
        ([link("out", "/etc/passwd")], "/etc/passwd"),
        ([link("out", "../../secret")], "../../secret"),
        ([folder("a"), link("a/out", "b/../../../secret")], "out"),
        ([folder("a"), link("a/up", ".."), link("out", "a/up/../..")], "out"),
        ([link("l", "a"), folder("a"), link("m", "l/../..")], "m"),
        ([link("l", "m"), link("m", "l")], "another link"),
        ([link("d", "."), file("d/evil.py")], "d/evil.py"),
        ([file("d"), file("d/evil.py")], "d/evil.py"),
        ([file("d/x"), file("d")], "'d' twice"),
        ([file("twice"), file("twice", b"other")], "'twice' twice"),
        ([file("twice"), file("./twice", b"other")], "'twice' twice"),
        ([file("twice"), link("twice", "train.py")], "'twice' twice"),
        ([special("hard", tarfile.LNKTYPE, "../../etc/passwd")], "../../etc/passwd"),
        ([special("hard", tarfile.LNKTYPE, "later.py"), file("later.py")], "later.py"),
        ([special("pipe", tarfile.FIFOTYPE)], "pipe"),
        ([special("disk", tarfile.BLKTYPE)], "disk"),
        ([special("tty", tarfile.CHRTYPE)], "tty"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_refuses_what_could_do_harm(place, members, named):
    assert named in str(refused(place, archive(file("train.py"), *members)))


def test_links_inside_stay_links_and_hard_links_become_copies(place):
    data = archive(
        file("train.py"),
        file("lib/net.py"),
        link("net.py", "lib/net.py"),
        link("lib/main.py", "../train.py"),
        special("copy.py", tarfile.LNKTYPE, "train.py"),
    )
    run(place, data)
    code = place / "job" / "code"
    assert os.readlink(code / "net.py") == "lib/net.py"
    assert (code / "lib" / "main.py").resolve() == (code / "train.py").resolve()
    assert (code / "copy.py").stat().st_nlink == 1
    assert (code / "copy.py").read_bytes() == (code / "train.py").read_bytes()


def test_refuses_too_many_members_and_names_the_first_too_many(place):
    members = [file(f"f{i}.py") for i in range(9)]
    assert "f4.py" in str(refused(place, archive(file("train.py"), *members), max_files=5))


def test_refuses_a_bomb_before_it_is_unpacked(place):
    zeros = bytes(3 << 20)
    error = refused(place, archive(file("train.py"), file("zeros.bin", zeros)), max_bytes=1 << 20)
    assert "zeros.bin" in str(error)
    assert error.status == 400


def test_refuses_a_header_that_would_fill_the_memory(place):
    member, data = file("train.py")
    member.pax_headers = {"comment": "x" * (2 << 20)}
    assert "header" in str(refused(place, archive((member, data)), max_bytes=1 << 30))


def test_names_the_files_that_are_there_when_main_is_missing(place):
    error = refused(place, archive(file("net/model.py"), file("net/data.py")), main="train.py", code_dir="net")
    assert "net/train.py" in error.message
    assert "net/data.py" in error.hint
    assert error.ids["files"] == ["net/data.py", "net/model.py"]


@pytest.mark.parametrize("code_dir", ["..", ".", "a/b", "/etc"])
def test_refuses_a_code_dir_that_is_no_folder_name(place, code_dir):
    assert refused(place, archive(file("train.py")), code_dir=code_dir).ids["field"] == "code_dir"


def test_refuses_a_damaged_archive(place):
    whole = archive(file("train.py", os.urandom(5000)), file("other.py", os.urandom(5000)))
    plain = gzip.decompress(whole)
    torn = bytearray(plain)
    torn[5632 + 150] ^= 0xFF  # the second header's checksum
    flipped = bytearray(whole)
    flipped[-6] ^= 0xFF  # gzip's own checksum
    for data in (b"", b"not a tar at all" * 100, whole[: len(whole) // 2], bytes(torn), bytes(flipped)):
        refused(place, data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_package_error_and_leaves_nothing(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("fuzz")
    (place / "job").mkdir()
    member, content = file("train.py", b"x" * 700)
    member.pax_headers = {"mtime": "1.5", "comment": "ü"}
    damaged = bytearray(archive((member, content), folder("a"), link("a/l", "../train.py"), compress=False))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, 4608))] = data.draw(st.integers(0, 255))
    try:
        run(place, bytes(damaged), max_bytes=10_000)
    except PackageError:
        assert os.listdir(place / "job") == []
    else:
        assert os.listdir(place / "job") == ["code"]
    assert sorted(os.listdir(place)) == ["job", "upload"]


def test_counts_folders_that_no_member_names(place):
    deep = [file(f"{top}/" + "/".join("d" * 20) + "/x") for top in range(4)]
    assert "more than 50 members" in str(refused(place, archive(file("train.py"), *deep)))


def test_remembers_no_more_than_fits(place):
    """A tar of many members, long names or common headers takes little memory, whatever it would unpack to."""
    with_path = [file("a", **{"pax_headers": {"path": f"{number}{'x' * 900_000}"}}) for number in range(3)]
    assert "too long a name" in str(refused(place, archive(file("train.py"), *with_path), max_bytes=1 << 30))
    common = tarfile.TarInfo.create_pax_global_header({str(number): "x" * 60_000 for number in range(3)})
    data = common + archive(file("train.py"), compress=False)
    assert "header" in str(refused(place, data, max_bytes=1 << 30))
