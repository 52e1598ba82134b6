"""Samples in many files: each once an epoch, one file after the other, and the same for any number of workers."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import edt_sdk.elastic as edt
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.wire import link as wire
from tests.training.elastic.test_own_loop import ended, hold, job_of, let_go, lose
from tests.waiting import until


@pytest.fixture
def lines(tmp_path: Path) -> list[Path]:
    """Five files of 7 to 11 lines, the last of each without an end, and one that is empty."""
    paths = [tmp_path / f"part-{number}.jsonl" for number in range(6)]
    for number, path in enumerate(paths[:5]):
        rows = [json.dumps({"file": number, "row": row, "x": [number, row]}) for row in range(7 + number)]
        path.write_text("\n".join(rows))
    paths[5].touch()
    return paths


def whole(sample: bytes) -> tuple[int, int]:
    row = json.loads(sample)
    return row["file"], row["row"]


def test_lines_by_their_numbers(lines: list[Path]) -> None:
    found = edt.stream(lines[::-1], whole)
    expected = [(number, row) for number in range(5) for row in range(7 + number)]
    assert [found[index] for index in range(len(found))] == expected
    with pytest.raises(IndexError):
        found[len(found)]
    # Where the samples begin is known from before, also to another process and after a fork.
    again = edt.stream(lines, whole)
    loaded = list(DataLoader(again, batch_size=None, shuffle=False, num_workers=2, multiprocessing_context="fork"))
    assert [tuple(each) for each in loaded] == expected


@pytest.mark.parametrize("spoil", ["a folder that others may write to", "a file of that name"])
def test_an_index_is_kept_only_where_this_account_alone_writes(
    lines: list[Path], spoil: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"edt-streams-{os.getuid()}"
    assert len(edt.stream(lines)) == 45
    (kept, *_) = folder.iterdir()
    assert kept.suffix == ".npy"
    if spoil.startswith("a folder"):
        for path in folder.iterdir():
            np.save(path, np.zeros(3, np.int64))
        folder.chmod(0o777)
    else:
        shutil.rmtree(folder)
        folder.touch()
    assert [edt.stream(lines, whole)[index] for index in (0, 44)] == [(0, 0), (4, 10)]


def test_a_data_set_with_a_sampler_of_its_own_is_no_stream(lines: list[Path]) -> None:
    data = TensorDataset(torch.arange(8.0)[:, None])
    data.sampler = [0] * 8
    net = nn.Linear(1, 1)
    run = edt.elastic(model=net, opt=torch.optim.SGD(net.parameters(), lr=0.01))
    update = next(run.updates(data, batch=8, shards=1, steps=1))
    (x,) = next(iter(update))
    assert sorted(x.flatten().tolist()) == list(range(8))


def test_a_file_that_has_changed_is_looked_at_again(lines: list[Path]) -> None:
    assert len(edt.stream(lines[:1])) == 7
    with lines[0].open("a") as file:
        file.write('\n{"file": 0, "row": 7}\n')
    found = edt.stream(lines[:1], whole)
    assert len(found) == 8
    assert found[7] == (0, 7)


def test_an_order_goes_through_one_file_after_the_other(lines: list[Path]) -> None:
    found = edt.stream(lines, whole, near=4)
    np.random.seed(1)
    first, second = (list(found.sampler) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(45))
    assert first != second
    files = [found[index][0] for index in first]
    assert sum(a != b for a, b in pairwise(files)) == 4
    rows = [found[index][1] // 4 for index in first if found[index][0] == 4]
    assert rows == sorted(rows), "only samples near each other are mixed"


def test_tars_as_webdataset_has_them(tmp_path: Path) -> None:
    for shard in range(3):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for sample in range(4):
                for ending, data in (("cls", str(sample).encode()), ("seg.png", b"p" * (300 * sample))):
                    member = tarfile.TarInfo(f"data/{shard}-{sample}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    found = edt.stream(tmp_path.glob("*.tar"), lambda sample: (int(sample["cls"]), len(sample["seg.png"])))
    assert [found[index] for index in range(len(found))] == [(n, 300 * n) for _ in range(3) for n in range(4)]


def test_rows_of_parquet_files(tmp_path: Path) -> None:
    from pyarrow import parquet, table

    for number in range(3):
        rows = range(10 * number, 10 * number + 10)
        columns = {"number": list(rows), "text": [f"row {row}" for row in rows], "x": [[row, 0.5] for row in rows]}
        parquet.write_table(table(columns), tmp_path / f"{number}.parquet", row_group_size=4)
    parquet.write_table(table({"number": [], "text": [], "x": []}), tmp_path / "none.parquet")
    found = edt.stream(tmp_path.glob("*.parquet"))
    assert len(found) == 30
    assert found[17] == {"number": 17, "text": "row 17", "x": [17.0, 0.5]}
    loaded = DataLoader(found, batch_size=None, sampler=found.sampler, num_workers=2)
    assert sorted(int(row["number"]) for row in loaded) == list(range(30))
    decoded = edt.stream(tmp_path.glob("*.parquet"), lambda row: (torch.tensor(row["x"]), row["number"]))
    assert decoded[3][0].tolist() == [3.0, 0.5]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(Unprocessable, match=r"bad\.parquet of a stream cannot be read"):
        edt.stream(tmp_path.glob("*.parquet"))


def test_parquet_files_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(Unprocessable, match=r"a\.parquet is a parquet file") as raised:
        edt.stream([tmp_path / "a.parquet"])
    assert raised.value.hint == "pip install pyarrow"


def test_a_training_takes_each_sample_once_an_epoch(lines: list[Path]) -> None:
    data = edt.stream(lines, lambda sample: torch.tensor(json.loads(sample)["x"], dtype=torch.float32))
    net = nn.Linear(2, 1)
    run = edt.elastic(model=net, opt=torch.optim.SGD(net.parameters(), lr=0.01))
    for _ in run.epochs(2):
        seen: list[Any] = []
        for update in run.updates(data, batch=8, shards=3, loader_workers=1):
            for x in update:
                update.backward(F.mse_loss(net(x), x[:, :1]))
                update.keep("x", x)
            seen += [tuple(row) for row in update.kept("x").tolist()]
            update.step()
        assert sorted(seen) == [(number, row) for number in range(5) for row in range(7 + number)]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="got no files"):
        edt.stream(tmp_path.glob("*.jsonl"))
    with pytest.raises(Unprocessable, match=r"gone\.jsonl of a stream cannot be read"):
        edt.stream([tmp_path / "gone.jsonl"])
    (tmp_path / "broken.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(Unprocessable, match=r"broken\.tar of a stream cannot be read"):
        edt.stream([tmp_path / "broken.tar"])


@pytest.mark.long  # two million samples are decoded
def test_a_million_samples_in_200_files_with_a_death_and_changes_of_size() -> None:
    with job_of("million.py", 4) as job:
        for part in range(200):
            numbers = range(part * 5000, (part + 1) * 5000)
            (job.root / f"part-{part}.txt").write_text("".join(f"{number}\n" for number in numbers))
        hold(job, 20, 60, 130)

        def at(worker: int, number: int) -> bool:
            path = job.root / f"at-{job.children[f'w{worker}'].process.pid}"
            return path.exists() and path.read_text() == str(number)

        job.prepare(0)
        job.generation(1, 0)
        until(lambda: at(0, 20), "update 20")
        job.prepare(1, 2)
        job.generation(2, 0, 1, 2)
        let_go(job, 20)
        job.joined(2)
        until(lambda: at(0, 60), "update 60")
        lose(job, 3, 0, 1, 2, at=60)
        until(lambda: at(1, 130), "update 130")
        job.generation(4, 2)
        let_go(job, 130)
        assert job.expect("w1", wire.Left).generation == 4
        assert ended(job, 2) == 200
        seen = np.zeros((2, 1_000_000), np.int64)
        for line in job.paths.commits(0).read_text().splitlines():
            commit = json.loads(line)
            for shard in commit["shards"]:
                np.add.at(seen[commit["epoch"]], shard["indices"], 1)
    assert (seen == 1).all()
