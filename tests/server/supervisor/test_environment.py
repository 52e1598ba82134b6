"""What driver and workers find in their environment (WMLA contract C.1)."""

import json
import os
from pathlib import Path

import pytest

import edt_sdk
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.context import job_context, worker_context
from edt_sdk.schemas.wire.control import Launch, Slot
from edt_server.supervisor.programs.environment import (
    JobEnvironment,
    driver_environment,
    make_folders,
    start_time_variables,
    worker_environment,
    zygote_environment,
)
from edt_server.system.detached import inherited

OF_THE_SERVER = {
    "PATH": "/usr/bin",
    "HOME": "/home/ann",
    "USER": "jupyter",
    "PYTHONPATH": "/shared/lib",
    "JPY_API_TOKEN": "secret-1",
    "JPY_PARENT_PID": "1",
    "JUPYTERHUB_API_TOKEN": "secret-2",
    "JUPYTER_TOKEN": "secret-3",
    "JUPYTER_PASSWORD": "secret-4",
    "CONFIGPROXY_AUTH_TOKEN": "secret-5",
    "EDT_TOKEN": "secret-6",
    "PGPASSWORD": "secret-7",
    "AWS_SECRET_ACCESS_KEY": "secret-8",
    "WANDB_API_KEY": "secret-9",
    "TRAINING_ID": "somebody's",
    "DATA_DIR": "/somewhere",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}
SERVER = inherited(OF_THE_SERVER)
CPU = Slot(id=2, host="h")
GPU = Slot(id=2, host="h", device="cuda:3")


@pytest.fixture
def surroundings(tmp_path):
    def make(*, data_fs="", **spec):
        orders = Launch(
            job_id="job-1",
            owner="ann",
            attempt=1,
            spec=JobSpec(name="n", main="train.py", max_workers=4, code_dir="model", args=("--x",), **spec),
            data_dir=str(tmp_path),
            runtime_dir="/run/edt",
            control_file="/c",
            public_key="p",
            secret_key="s",
            interpreter="/opt/python",
            threads_per_slot=2,
            data_fs=data_fs,
        )
        return JobEnvironment(orders, "node1", Path("/run/edt/link.sock"), SERVER)

    return make


def test_wmla_variables_of_the_driver(surroundings, tmp_path):
    job = surroundings()
    result = tmp_path / "results/ann/batchworkdir/job-1"
    environment = driver_environment(job)
    expected = {
        "RESULT_DIR": str(result),
        "LOG_DIR": str(result / "log/driver-job-1.node1"),
        "SAVED_MODEL_DIR": str(result / "model"),
        "CHECKPOINT_DIR": str(result / "checkpoint"),
        "DLI_RESULT_FS": str(tmp_path / "results"),
        "DLI_EXECID": "job-1",
        "DLI_WORK_DIR": str(result / "_submitted_code/model"),
        "MODEL_PATH": str(result / "_submitted_code/model"),
        "DLI_IS_ELASTIC": "true",
        "FRAME_WORK": "edtPyTorch",
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": "/home/ann",
    }
    assert expected.items() <= environment.items()
    assert (
        os.path.join(environment["DLI_RESULT_FS"], environment["USER"], "batchworkdir", environment["DLI_EXECID"])
        == (environment["RESULT_DIR"])
    )
    assert Path(environment["FABRIC_HOME"]).is_dir()
    for name in ("TRAINING_ID", "DATA_DIR", "DLI_DATA_FS"):
        assert name not in environment


def test_no_secret_of_the_server_gets_into_a_job(surroundings):
    for environment in (driver_environment(surroundings()), worker_environment(surroundings(), 0, CPU)):
        assert "secret-" not in str(environment)
        assert not [name for name in environment if name.startswith(("JPY_", "JUPYTER"))]


def test_the_administrator_names_what_jobs_see_beside_that():
    more = inherited(OF_THE_SERVER, ["WANDB_*", "EDT_TOKEN"])
    assert {name: value for name, value in more.items() if name not in SERVER} == {"WANDB_API_KEY": "secret-9"}


def test_the_data_folder_when_there_is_one(surroundings):
    environment = driver_environment(surroundings(data_fs="/data"))
    assert environment["DATA_DIR"] == environment["DLI_DATA_FS"] == "/data"


def test_the_users_modules_come_before_ours(surroundings):
    job = surroundings()
    path = driver_environment(job)["PYTHONPATH"].split(os.pathsep)
    compat = Path(edt_sdk.__file__).parent / "compat" / "job"
    assert path == [str(job.code_dir), "/shared/lib", str(compat)]
    own = driver_environment(surroundings(env={"PYTHONPATH": "/own:/two"}))["PYTHONPATH"].split(os.pathsep)
    assert own == [str(job.code_dir), "/own", "/two", str(compat)]


def test_the_jobs_own_variables_win_but_not_over_slots_and_context(surroundings):
    job = surroundings(
        env={"USER": "x", "OMP_NUM_THREADS": "7", "DATA_DIR": "/mine", "EDT_JOB": "{}", "CUDA_VISIBLE_DEVICES": "0"}
    )
    environment = worker_environment(job, 0, GPU)
    assert (environment["USER"], environment["OMP_NUM_THREADS"], environment["DATA_DIR"]) == ("x", "7", "/mine")
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert job_context(environment).job_id == "job-1"


def test_a_worker_sees_its_slot_and_its_threads(surroundings):
    cpu = worker_environment(surroundings(), 5, CPU)
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    assert (cpu["OMP_NUM_THREADS"], cpu["MKL_NUM_THREADS"]) == ("2", "2")
    assert cpu["LOG_DIR"].endswith("/log/5-job-1.node1")
    own = worker_context(cpu)
    assert (own.worker, own.slot, own.device) == (5, 2, "cpu")
    gpu = worker_environment(surroundings(), 5, GPU)
    assert (gpu["CUDA_VISIBLE_DEVICES"], gpu["CUDA_DEVICE_ORDER"]) == ("3", "PCI_BUS_ID")
    assert worker_context(gpu).device == "cuda:0"
    assert worker_context(driver_environment(surroundings())) is None


def test_the_context_leads_to_the_jobs_files(surroundings):
    job = surroundings(seed=2**40 + 3)
    environment = driver_environment(job)
    context = job_context(environment)
    assert context.paths == job.paths
    assert context.paths.code_dir(context.code_dir) == job.code_dir
    assert (context.main, context.args, context.link) == ("train.py", ("--x",), "/run/edt/link.sock")
    assert environment["PYTHONHASHSEED"] == "0", "the same for all, as the zygote that it is forked from"
    assert context.quiet
    assert not job_context(driver_environment(surroundings(log="batches"))).quiet


def test_under_a_supervisor_of_the_version_before_a_job_prints_as_it_did(surroundings):
    environment = driver_environment(surroundings())
    before = json.loads(environment["EDT_JOB"])
    del before["log"]
    assert not job_context({"EDT_JOB": json.dumps(before)}).quiet


def test_a_zygote_has_what_every_job_has_and_nothing_of_one(surroundings):
    zygote = zygote_environment(SERVER, 2)
    driver, worker = driver_environment(surroundings()), worker_environment(surroundings(), 0, CPU)
    assert "secret-" not in str(zygote)
    assert zygote.pop("EDT_ROOM").isspace()
    assert zygote.pop("PYTHONPATH") == "/shared/lib"
    assert zygote.pop("USER") == "jupyter"
    assert zygote.pop("CUDA_VISIBLE_DEVICES") == "0,1,2,3"
    # Read by glibc when a program starts: it comes too late for what is forked, which has it from the zygote.
    assert int(zygote.pop("MALLOC_TRIM_THRESHOLD_")) > int(zygote.pop("MALLOC_MMAP_THRESHOLD_")) > 0
    assert zygote.items() <= worker.items()
    assert (zygote.pop("OMP_NUM_THREADS"), zygote.pop("MKL_NUM_THREADS")) == ("2", "2")
    assert zygote.items() <= driver.items()


def test_a_jobs_own_zygote_has_its_variables():
    env = {"OMP_NUM_THREADS": "7", "PYTHONPATH": "/own", "CUDA_VISIBLE_DEVICES": "5", "EDT_JOB": "{}", "LR": "1"}
    zygote = zygote_environment(SERVER, 2, env)
    assert (zygote["OMP_NUM_THREADS"], zygote["MKL_NUM_THREADS"], zygote["LR"]) == ("7", "2", "1")
    assert zygote["PYTHONPATH"] == "/own"
    assert "EDT_JOB" not in zygote
    assert zygote_environment(SERVER, 2, {"MALLOC_TRIM_THRESHOLD_": "1"})["MALLOC_TRIM_THRESHOLD_"] == "1"


def test_which_variables_need_a_start():
    env = {"LR": "1", "DATA_DIR": "/d", "OMP_NUM_THREADS": "2", "PYTHONPATH": "/p", "CUDA_VISIBLE_DEVICES": "0"}
    assert start_time_variables(env) == ("OMP_NUM_THREADS", "PYTHONPATH")
    assert start_time_variables({"TORCH_SHOW_CPP_STACKTRACES": "1"}) == ("TORCH_SHOW_CPP_STACKTRACES",)
    assert start_time_variables({}) == ()


def test_folders_that_scripts_expect(surroundings):
    job = surroundings()
    make_folders(job)
    make_folders(job)
    for name in ("model/train", "checkpoint", "log"):
        assert (job.paths.result_dir / name).is_dir()
