"""What a submission asked for and cannot have is told in the job's story, and stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobPatch, JobSpec
from edt_sdk.schemas.plan import InstanceGroup
from edt_sdk.schemas.registered import WmlaRequest
from edt_sdk.schemas.torchrun import TorchrunOptions
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
    def change(framework: str, patch: JobPatch) -> None:
        job = spec(framework=framework)
        check_change(job, job.settings, patch, InstanceGroup(name="default"), admin=False)

    change("edtPyTorch", JobPatch(max_workers=3))
    change("PyTorch", JobPatch(max_workers=1, priority=3))
    with pytest.raises(Unprocessable, match="no more and no fewer"):
        change("PyTorch", JobPatch(max_workers=3))


def test_a_change_meets_the_highest_priority_of_the_group() -> None:
    before = spec(priority=20_000, instance_group="day")

    def change(admin: bool = False, most: int = 10_000, **patch) -> None:
        group = InstanceGroup(name=patch.get("instance_group", "day"), max_priority=most)
        check_change(before, before.settings, JobPatch(**patch), group, admin=admin)

    change(priority=10_000)
    change(max_workers=3)  # it was above the bound before, and stays as it is
    change(priority=20_000)
    change(priority=10_001, admin=True)
    change(priority=30_000, most=30_000)
    for patch in ({"priority": 10_001}, {"instance_group": "night"}):
        with pytest.raises(Unprocessable, match="at most 10000 in the instance group") as refused:
            change(**patch)
        assert "Only an admin" in refused.value.hint
        assert refused.value.ids["field"] == "priority"
