"""From a WMLA client's submission to a job."""

from __future__ import annotations

from typing import Any

import pytest

from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_server.wmla.args import parse
from edt_server.wmla.request import arguments_of, job_spec


def spec_of(line: str, **more: Any) -> JobSpec:
    return job_spec(parse(line), **more)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("edtPyTorch", (1, 8, 1)),
        ("edtPyTorch --edt-options maxWorkers=2", (1, 2, 1)),
        ("edtPyTorch --numWorker 3", (1, 3, 1)),
        ("edtPyTorch --numWorker 3 --gpuPerWorker 2", (1, 6, 1)),
        ("edtPyTorch --numWorker 3 --edt-options maxWorkers=2", (1, 2, 1)),
        ("PyTorch", (1, 1, 1)),
        ("PyTorch --workerDeviceNum 0", (1, 1, 1)),
        ("PyTorch --gpuPerWorker 4", (4, 4, 4)),
        ("PyTorch --numWorker 4", (1, 1, 1)),
        ("distPyTorch --numWorker 3", (3, 3, 1)),
        ("distPyTorch --numWorker 3 --workerDeviceNum 2", (6, 6, 2)),
        ("distPyTorch", (1, 1, 1)),
        ("torchrun --numWorker 3 --gpuPerWorker 2", (2, 6, 2)),
        ("torchrun --gpuPerWorker 3", (3, 6, 3)),
    ],
)
def test_workers_and_devices_become_slots(line: str, size: tuple[int, int, int]) -> None:
    spec = spec_of(f"--model-main a.py --exec-start {line}", slots=8)
    assert (spec.min_workers, spec.max_workers, spec.slots_per_unit) == size


def test_the_script_its_arguments_and_what_only_wmla_s_clients_see_again() -> None:
    line = (
        "--exec-start PyTorch --model-main src/a.py --model-dir m --lr 0.1 --appName Nightly --consumer /p/q "
        "--msd-image-name pt:1 --msd-env A=1 --debug-level WARN --cs-datastore-meta type=fs --ig old --msd-priority 70"
    )
    spec = spec_of(line, sig_name="dli-group", code_dir="m")
    assert (spec.name, spec.main, spec.args, spec.code_dir) == ("Nightly", "a.py", ("--lr", "0.1"), "m")
    assert (spec.framework, spec.priority, spec.instance_group) == ("PyTorch", 70, "dli-group")
    assert spec.env == {"A": "1", "DLI_LOGGER_LEVEL": "warn", "DLI_CS_DATASTORE_META": "type=fs"}
    assert spec.wmla is not None
    assert (spec.wmla.args, spec.wmla.app_name, spec.wmla.sig_name) == (line, "Nightly", "dli-group")
    assert spec.wmla.consumer == "/p/q"
    assert [remark.split()[0] for remark in spec.wmla.remarks] == ["--msd-image-name", "--consumer"]
    assert spec.log == "batches", "their clients draw curves of these lines"


def test_a_legacy_instance_group_counts_when_the_request_names_none() -> None:
    assert spec_of("--exec-start PyTorch --model-main a.py --ig old").instance_group == "old"


def test_a_user_s_command_runs_in_a_shell() -> None:
    spec = spec_of("--exec-start distPyTorch --numWorker 2 --user-cmd -- bash run.sh $RANK")
    assert (spec.main, spec.command) == ("", ("bash", "-c", "bash run.sh $RANK"))


def test_a_form_from_4x_on() -> None:
    form = {
        "args": "--exec-start distPyTorch --model-main a.py --numWorker 1",
        "hardwareSpec": {
            "nodes": {"num_nodes": 2, "mem": {"size": "16g"}, "gpu": {"num_gpu": 2}, "cpu": {"units": "1"}}
        },
    }
    spec = job_spec(arguments_of(None, form), form=form)
    assert (spec.min_workers, spec.max_workers, spec.slots_per_unit) == (4, 4, 2)
    assert spec.wmla is not None
    assert spec.wmla.remarks == (
        "hardwareSpec's cpu, mem has no meaning here: a job gets slots of this server, "
        "with their share of its processors and memory.",
    )


@pytest.mark.parametrize(
    ("sources", "path"),
    [
        ([{"type": "fs", "location": {"paths": "/mnist"}}], "mnist"),
        ([{"type": "fs", "location": {"paths": "mnist/,other"}}], "mnist"),
        ([{"type": "fs", "location": {"paths": ["mnist"]}}], "mnist"),
        ({"type": "fs", "location": "mnist"}, "mnist"),
        ([{"type": "connection_asset", "connection": {}}], "store"),
        ([], "store"),
    ],
)
def test_a_data_source_goes_before_the_data_store(sources: Any, path: str) -> None:
    line = "--exec-start PyTorch --model-main a.py --cs-datastore-meta type=fs,data_path=store"
    assert spec_of(line, form={"dataSource": sources}).data_path == path


@pytest.mark.parametrize(
    ("line", "form", "field", "cls"),
    [
        ("--model-main a.py", {}, "--exec-start", InvalidRequest),
        ("--exec-start Caffe --model-main a.py", {}, "framework", Unprocessable),
        ("--exec-start PyTorch", {}, "--model-main", InvalidRequest),
        ("--exec-start PyTorch --pbmodel-cmd train --pbmodel-name VGG16", {}, "--pbmodel-name", InvalidRequest),
        ("--exec-start edtPyTorch --user-cmd -- ls", {}, "command", Unprocessable),
        ("--exec-start PyTorch --model-main a.py", {"hardwareSpec": []}, "hardwareSpec", InvalidRequest),
        ("--exec-start PyTorch --model-main a.py", {"hardwareSpec": {"nodes": 1}}, "hardwareSpec", InvalidRequest),
        (
            "--exec-start PyTorch --model-main a.py",
            {"hardwareSpec": {"nodes": {"gpu": 1}}},
            "hardwareSpec",
            InvalidRequest,
        ),
        (
            "--exec-start PyTorch --model-main a.py",
            {"hardwareSpec": {"nodes": {"num_nodes": "x"}}},
            "hardwareSpec",
            InvalidRequest,
        ),
        ("--exec-start PyTorch --model-main a.py", {"dataSource": "x"}, "dataSource", InvalidRequest),
        ("--exec-start PyTorch --model-main a.py", {"dataSource": [{"type": "fs"}]}, "dataSource", InvalidRequest),
        ("--exec-start PyTorch --model-main a.py --cs-datastore-meta data_path=../x", {}, "data_path", InvalidRequest),
        ("--exec-start PyTorch --model-main a.py --msd-priority 999999999", {}, "", None),
    ],
)
def test_what_cannot_be_done_is_said(line: str, form: dict[str, Any], field: str, cls: type[EdtError] | None) -> None:
    if cls is None:
        assert spec_of(line).priority == 999_999_999
        return
    with pytest.raises(cls) as refused:
        spec_of(line, form=form)
    assert refused.value.ids["field"] == field


def test_a_request_without_args() -> None:
    with pytest.raises(InvalidRequest, match="has no args"):
        arguments_of(" ", {})


TORCHRUN = "--exec-start torchrun"


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("--model-main a.py --nnodes=1:4 --nproc_per_node=2", (2, 8, 2)),
        ("--nnodes 2 --model-main a.py --gpuPerWorker 3", (6, 6, 3)),
        ("--model-main a.py --nproc-per-node 2 --numWorker 3", (2, 6, 2)),
        ("--model-main a.py --nproc_per_node=gpu --gpuPerWorker 4 --nnodes=1:2", (4, 8, 4)),
        ("--model-main a.py --nnodes=1:2 --numWorker 8", (1, 2, 1)),
        ("-- --nnodes=1:4 --nproc_per_node=2 a.py", (2, 8, 2)),
        ("--user-cmd -- torchrun --nnodes=1:4 a.py", (1, 4, 1)),
        ("--user-cmd -- python3 -m torchelastic.distributed.launch --nnodes=2:4 a.py", (2, 4, 1)),
    ],
)
def test_torchrun_s_own_options_say_how_many(line: str, size: tuple[int, int, int]) -> None:
    spec = spec_of(f"{TORCHRUN} {line}", slots=8)
    assert (spec.main, spec.command) == ("a.py", ())
    assert (spec.min_workers, spec.max_workers, spec.slots_per_unit) == size


def test_among_others_only_what_can_be_nobody_else_s_is_torchrun_s() -> None:
    line = (
        f"{TORCHRUN} --nnodes=1:2 --lr 0.1 --max-restarts 3 --model-main a.py --log-dir out --rdzv_id=7 "
        "--role x -m --epochs 2 -- --nnodes 9"
    )
    spec = spec_of(line)
    assert spec.args == ("--lr", "0.1", "--log-dir", "out", "--role", "x", "-m", "--epochs", "2", "--nnodes", "9")
    assert spec.torchrun is not None
    assert (spec.torchrun.max_restarts, spec.torchrun.role, spec.torchrun.module) == (3, "default", False)
    (said,) = spec.torchrun.said
    assert said.startswith("--rdzv-id=7: not needed")


@pytest.mark.parametrize(
    "line",
    [
        "-- --nnodes=1:2 --role trainer -m pkg.train --lr 1",
        "--nnodes=1:2 --role trainer -m pkg.train --lr 1",
        "--user-cmd -- torchrun --nnodes=1:2 --role trainer -m pkg.train --lr 1",
    ],
)
def test_without_a_main_the_line_is_torchrun_s(line: str) -> None:
    spec = spec_of(f"{TORCHRUN} {line}")
    assert (spec.main, spec.args, spec.command) == ("pkg.train", ("--lr", "1"), ())
    assert spec.torchrun is not None
    assert (spec.torchrun.module, spec.torchrun.role) == (True, "trainer")


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes=1:4 --rdzv-backend=edt a.py",
        "cd src && torchrun a.py",
        "bash run.sh",
        "./train --nnodes=3",
    ],
)
def test_a_command_that_needs_a_shell_or_meets_by_itself_stays_one(command: str) -> None:
    spec = spec_of(f"{TORCHRUN} --numWorker 4 --user-cmd -- {command}")
    assert (spec.main, spec.command, spec.max_workers) == ("", ("bash", "-c", command), 4)


@pytest.mark.parametrize(
    ("line", "field", "words"),
    [
        ("--model-main a.py --nnodes=0", "torchrun", "no number of nodes"),
        ("--model-main a.py --nnodes=4:1", "torchrun", "no number of nodes"),
        ("--model-main a.py --max-restarts", "torchrun", "expected one argument"),
        ("--model-main a.py --max-restarts=-1", "max_restarts", "0 or more"),
        ("--model-main a.py --nproc_per_node=many", "torchrun", "no number of processes"),
        ("-- --nnodes=1:2 --unheard-of a.py", "torchrun", "unheard-of"),
        ("--user-cmd -- torchrun --no-python --module a", "torchrun", "exclude each other"),
        ("--model-main a.py --user-cmd -- torchrun b.py", "--model-main", "b.py"),
        ("--nnodes=1:2", "--model-main", "no script"),
    ],
)
def test_what_torchrun_cannot_be_told_is_refused(line: str, field: str, words: str) -> None:
    with pytest.raises(EdtError, match=words) as refused:
        spec_of(f"{TORCHRUN} {line}")
    assert refused.value.ids["field"] == field
    assert 400 <= refused.value.status < 500


def test_other_frameworks_scripts_keep_these_words() -> None:
    assert spec_of("--exec-start PyTorch --model-main a.py --nnodes=0 --rdzv-id 1").args == (
        "--nnodes=0", "--rdzv-id", "1",
    )  # fmt: skip
