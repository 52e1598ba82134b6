"""What model code of WMLA reads in its environment (contract, sections C.1 to C.4), for every framework."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.control import Launch, Slot
from edt_sdk.schemas.wire.task import Task
from edt_server.supervisor.programs.environment import (
    JobEnvironment,
    driver_environment,
    make_folders,
    task_environment,
    worker_environment,
)

# What the model code of WMLA's releases was found to read, by whom it is set there.
READ = {
    *("DATA_DIR", "RESULT_DIR", "LOG_DIR", "FABRIC_HOME", "USER"),
    *("DLI_EXECID", "DLI_DATA_FS", "DLI_RESULT_FS"),
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
    *("WMLA_NWORKER", "WMLA_WORKER_NDEVICE", "NODE_RANK"),
    *("TRAINING_ID", "JOB_STATE_DIR", "SUBID", "FABRIC_BACKEND"),
    *("WMLA_USER_DATA_DIR", "WMLA_USER_DATA_FILES", "TF_CONFIG"),
}
# Read by client code, and still not ours to set: of services and frameworks that are not here, or optional there.
NOT_HERE = {
    "TF_CONFIG": "distributed TensorFlow is no framework here",
    "TRAINING_ID": "optional: of WML's service",
    "JOB_STATE_DIR": "optional: of WML's service",
    "SUBID": "optional: of WML's service",
    "FABRIC_BACKEND": "optional: found out by the SDK itself",
    "WMLA_USER_DATA_DIR": "optional: of data connections",
    "WMLA_USER_DATA_FILES": "optional: of data connections",
}
OF_PLAIN_JOBS = {
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
    *("WMLA_NWORKER", "WMLA_WORKER_NDEVICE", "NODE_RANK"),
}
EVERYWHERE = {
    *("DATA_DIR", "RESULT_DIR", "LOG_DIR", "FABRIC_HOME"),
    *("DLI_EXECID", "DLI_DATA_FS", "DLI_RESULT_FS"),
}
GPUS = (Slot(id=0, host="h", device="cuda:1"), Slot(id=1, host="h", device="cuda:3"))


def surroundings(root: Path, framework: str, **spec: object) -> JobEnvironment:
    orders = Launch(
        job_id="job-1",
        owner="ann",
        attempt=1,
        spec=JobSpec(
            name="n",
            main="train.py",
            max_workers=2,
            framework=framework,
            code_dir="model",
            data_path="mnist/raw",
            **spec,
        ),
        data_dir=str(root),
        runtime_dir="/run/edt",
        control_file="/c",
        public_key="p",
        secret_key="s",
        interpreter="/opt/env/bin/python",
        threads_per_slot=2,
        data_fs="/data",
    )
    return JobEnvironment(orders, "node1", Path("/run/edt/link.sock"), {"PATH": "/usr/bin", "USER": "jupyter"})


def task(rank: int = 0, *slots: Slot) -> Task:
    return Task(run=1, rank=rank, world=2, slots=slots or GPUS[:1], port=4321)


def environments(root: Path, framework: str) -> dict[str, dict[str, str]]:
    job = surroundings(root, framework)
    if framework == Framework.EDT:
        return {"driver": driver_environment(job), "worker": worker_environment(job, 0, GPUS[0])}
    return {f"rank {rank}": task_environment(job, task(rank)) for rank in (0, 1)}


FRAMEWORKS = ("edtPyTorch", "PyTorch", "distPyTorch")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_client_code_reads_is_right_in_every_process(framework: str, tmp_path: Path) -> None:
    result = tmp_path / "results/ann/batchworkdir/job-1"
    for process, environment in environments(tmp_path, framework).items():
        expected = {
            "RESULT_DIR": str(result),
            "DATA_DIR": "/data/mnist/raw",
            "DATA_PATH": "mnist/raw",
            "DLI_DATA_FS": "/data",
            "DLI_RESULT_FS": str(tmp_path / "results"),
            "DLI_EXECID": "job-1",
            "SAVED_MODEL_DIR": str(result / "model"),
            "CHECKPOINT_DIR": str(result / "checkpoint"),
            "DLI_WORK_DIR": str(result / "_submitted_code/model"),
            "MODEL_PATH": str(result / "_submitted_code/model"),
            "FRAME_WORK": framework,
            "DLI_IS_ELASTIC": "true" if framework == "edtPyTorch" else "false",
            "DLI_CS_DATASTORE_META": "type=fs,data_path=mnist/raw",
            "DLI_LOGGER_LEVEL": "info",
        }
        assert {name: environment.get(name) for name in expected} == expected, process
        # Rebuilt by one client's code from three of them.
        own = f"{environment['DLI_RESULT_FS']}/{environment['USER']}/batchworkdir/{environment['DLI_EXECID']}"
        assert own == environment["RESULT_DIR"]
        assert Path(environment["LOG_DIR"]).parent == result / "log"
        assert Path(environment["FABRIC_HOME"]).is_dir()


def test_every_variable_that_is_read_is_set_or_named_as_not_here(tmp_path: Path) -> None:
    everything = {name for framework in FRAMEWORKS for e in environments(tmp_path, framework).values() for name in e}
    assert READ - everything == set(NOT_HERE)
    for framework in FRAMEWORKS:
        for environment in environments(tmp_path, framework).values():
            assert set(environment) >= EVERYWHERE


def test_ranks_find_each_other_and_see_their_own_slots(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "distPyTorch")
    found = [task_environment(job, task(rank, GPUS[rank])) for rank in (0, 1)]
    assert set(found[1]) >= OF_PLAIN_JOBS
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
    assert [tuple(environment[name] for name in names) for environment in found] == [
        ("0", "2", "0", "1", "0", "4321", "1"),
        ("1", "2", "0", "1", "1", "4321", "3"),
    ]
    assert (found[0]["MASTER_ADDR"], found[0]["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")
    assert found[0]["LOG_DIR"] != found[1]["LOG_DIR"]


def test_ranks_on_several_hosts_meet_at_the_address_of_the_first(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "distPyTorch")
    job = replace(job, orders=msgspec.structs.replace(job.orders, interface="127.0.0.1"))
    found = task_environment(job, msgspec.structs.replace(task(1), master="10.77.0.1"))
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.77.0.1", "4321")
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == "lo", "what has this host's address"
    job = replace(job, orders=msgspec.structs.replace(job.orders, interface="192.0.2.1"))
    found = task_environment(job, msgspec.structs.replace(task(1), master="10.77.0.1"))
    assert "GLOO_SOCKET_IFNAME" not in found, "the library looks for one"


def test_one_process_sees_all_slots_of_its_host_and_no_peers(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "PyTorch")
    elsewhere = Slot(id=7, host="other", device="cuda:0")
    environment = task_environment(job, Task(run=1, rank=0, world=1, slots=(*GPUS, elsewhere), port=1))
    assert environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert environment["OMP_NUM_THREADS"] == "6"
    assert environment["WMLA_WORKER_NDEVICE"] == "3"
    # Libraries take these for a wish to find others.
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG"} & set(environment)


def test_a_command_finds_the_job_s_python_first(tmp_path: Path) -> None:
    environment = task_environment(surroundings(tmp_path, "PyTorch", command=("torchrun",)), task())
    assert environment["PATH"] == f"/opt/env/bin{os.pathsep}/usr/bin"


def test_without_a_data_folder_scripts_keep_their_own_default(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "PyTorch")
    bare = JobEnvironment(
        Launch(**{name: getattr(job.orders, name) for name in job.orders.__struct_fields__} | {"data_fs": ""}),
        job.host,
        job.link,
        job.base,
    )
    assert not {"DATA_DIR", "DLI_DATA_FS"} & set(task_environment(bare, task()))


def test_what_the_submission_sets_comes_before_ours(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "distPyTorch", env={"DATA_DIR": "/mine", "GLOO_SOCKET_IFNAME": "eth1", "RANK": "7"})
    environment = task_environment(job, task())
    assert (environment["DATA_DIR"], environment["GLOO_SOCKET_IFNAME"]) == ("/mine", "eth1")


@pytest.mark.parametrize(
    ("framework", "folders"),
    [("edtPyTorch", {"model", "model/train"}), ("PyTorch", {"model"}), ("distPyTorch", {"model"})],
)
def test_the_result_tree(framework: str, folders: set[str], tmp_path: Path) -> None:
    job = surroundings(tmp_path, framework)
    make_folders(job)
    make_folders(job)  # each attempt does
    result = job.paths.result_dir
    assert {path.relative_to(result).as_posix() for path in result.rglob("*") if path.is_dir()} == {
        *folders,
        "checkpoint",
        "log",
    }


def test_config_json_is_found_by_its_name_and_by_its_whole_path(tmp_path: Path) -> None:
    job = surroundings(tmp_path, "PyTorch")
    environment = task_environment(job, task())
    assert job.code_dir == Path(environment["RESULT_DIR"]) / "_submitted_code" / "model"
    assert environment["DLI_WORK_DIR"] == str(job.code_dir)
