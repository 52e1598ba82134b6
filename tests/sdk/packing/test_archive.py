import io
import os
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import Collected, SourceFile, collect
from edt_sdk.packing.table import human_bytes, packing_table
from edt_sdk.packing.upload import Multipart
from edt_sdk.schemas.errors import PackageError, TooLarge


def file(name, data=b"x", **more):
    return SourceFile(name, data, len(data), **more)


def archive(files, **options):
    target = io.BytesIO()
    assert write_archive(files, target, **options) == len(target.getvalue())
    return target.getvalue()


def test_the_same_files_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / name / "model"
        folder.mkdir(parents=True)
        for child in ("b.py", "a.py", "main.py") if name == "one" else ("main.py", "a.py", "b.py"):
            (folder / child).write_text(child)
            os.utime(folder / child, (1000 if name == "one" else 2000, 5))
    one, two = (archive(collect(tmp_path / name / "model").files) for name in ("one", "two"))
    assert one == two


def test_the_archive_says_nothing_about_this_machine():
    packed = archive([file("b/c.py"), file("run.sh", executable=True), file("ü" * 200)])
    assert b"mtime" not in packed
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == ["b/c.py", "run.sh", "ü" * 200]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}
    assert [m.mode for m in members] == [0o644, 0o755, 0o644]


def test_the_cap_holds_inside_a_file_too_and_names_the_largest(tmp_path):
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(300_000))
    files = [file("small.py"), SourceFile("big.bin", big, 300_000), file("z.bin", os.urandom(10_000))]
    target = io.BytesIO()
    with pytest.raises(TooLarge, match=r"limit of 100 kB.*big\.bin \(300 kB\), z\.bin") as refused:
        write_archive(files, target, cap=100_000)
    assert len(target.getvalue()) <= 100_000
    assert ".edtignore" in refused.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    gone = SourceFile("gone.txt", tmp_path / "gone.txt", 3)
    with pytest.raises(PackageError, match=r"gone\.txt cannot be packed: No such file"):
        archive([gone])


@given(spec=st.binary(max_size=50), package=st.binary(max_size=500), sizes=st.lists(st.integers(1, 80), max_size=40))
def test_the_body_has_its_length_and_no_read_gives_more_than_asked(spec, package, sizes):
    sent = []
    body = Multipart(spec, io.BytesIO(package), len(package), lambda done, total: sent.append((done, total)))
    pieces = []
    for size in sizes:
        pieces.append(body.read(size))
        assert len(pieces[-1]) <= size
    while piece := body.read(64):
        pieces.append(piece)
    whole = b"".join(pieces)
    assert len(whole) == len(body)
    assert sent[-1] == (len(body), len(body))
    mark = f"--{body.boundary}".encode()
    first, second = whole.split(mark)[1:3]
    assert first.partition(b"\r\n\r\n")[2] == spec + b"\r\n"
    assert second.partition(b"\r\n\r\n")[2] == package + b"\r\n"
    assert whole.endswith(mark + b"--\r\n")


def test_the_table_shows_sizes_and_the_main_script():
    table = packing_table(Collected("m", "train.py", (file("train.py", b"x" * 1500), file("a.csv")), ("a note",)), 900)
    assert table == (
        "Packing 2 files, 1.5 kB, 900 B compressed:\n  a.csv           1 B\n  train.py     1.5 kB  ← main\n"
        "  note: a note"
    )


def test_helpers_that_are_not_listed_are_named_beside_the_size():
    hidden = file("elog.py", b"x" * 3000, spare=True)
    table = packing_table(Collected("m", "train.py", (file("train.py", b"x" * 590), hidden)), 4200)
    assert table.startswith("Packing 1 file, 590 B, 4.2 kB compressed with 1 small helper module:")


def test_many_files_show_the_largest():
    files = tuple(file(f"f{n:02}", b"x" * n) for n in range(40))
    table = packing_table(Collected("m", "f39", files), 1)
    assert "f39" in table
    assert "… and 21 smaller files" in table
    assert len(table.splitlines()) == 21


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB")])
def test_sizes_for_people(size, text):
    assert human_bytes(size) == text
