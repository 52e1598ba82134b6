"""What a submission asked for and cannot have is told in the job's story, and stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobPatch, JobSpec
from edt_sdk.schemas.torchrun import TorchrunOptions
from edt_sdk.schemas.wmla import WmlaRequest
from edt_server.jobs.submission import check_change, main_file, remarks, sized


def spec(**more: object) -> JobSpec:
    return JobSpec(**{"name": "n", "main": "a.py", "max_workers": 1, **more})


def test_remarks_of_wmla_s_clients_and_of_torchrun() -> None:
    both = spec(wmla=WmlaRequest(remarks=("A.", "B.")), torchrun=TorchrunOptions(said=("C.",)))
    assert remarks(both, "") == ("A.", "B.", "C.")


def test_data_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    assert remarks(spec(data_path="mnist"), str(tmp_path)) == ()
    assert "EdtApp.data_fs" in remarks(spec(data_path="mnist"), "")[0]
    assert "no cifar in" in remarks(spec(data_path="cifar"), str(tmp_path))[0]
    assert remarks(spec(), "") == ()


@pytest.mark.parametrize(
    ("more", "main"),
    [
        ({}, "a.py"),
        ({"command": ("ls",), "framework": "PyTorch"}, ""),
        ({"torchrun": TorchrunOptions(), "framework": "torchrun"}, "a.py"),
        ({"torchrun": TorchrunOptions(module=True), "framework": "torchrun"}, ""),
        ({"torchrun": TorchrunOptions(no_python=True), "framework": "torchrun"}, ""),
    ],
)
def test_which_script_has_to_be_in_the_package(more: dict[str, object], main: str) -> None:
    assert main_file(spec(**more)) == main


@pytest.mark.parametrize(
    ("framework", "unit", "size"),
    [
        ("edtPyTorch", 1, (1, 4, 1)),
        ("torchrun", 2, (1, 4, 2)),
        ("PyTorch", 1, (4, 4, 4)),
        ("distPyTorch", 1, (4, 4, 1)),
        ("distPyTorch", 2, (4, 4, 2)),
    ],
)
def test_jobs_that_are_not_elastic_get_all_their_slots_or_none(
    framework: str, unit: int, size: tuple[int, int, int]
) -> None:
    found = sized(spec(framework=framework, max_workers=4, slots_per_unit=unit).check())
    assert (found.min_workers, found.max_workers, found.slots_per_unit) == size
    found.check()


def test_their_size_stays() -> None:
    check_change(spec(framework="edtPyTorch"), JobPatch(max_workers=3))
    check_change(spec(framework="PyTorch"), JobPatch(max_workers=1, priority=3))
    with pytest.raises(Unprocessable, match="no more and no fewer"):
        check_change(spec(framework="PyTorch"), JobPatch(max_workers=3))
