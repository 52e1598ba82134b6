"""The options of an `args` line that belong to the platform, and why some have no meaning here.

A table and nothing else. A platform option never reaches the script, because many scripts refuse unknown options. The
options for a client's connection (`--rest-host`, `--username`, …) are not in it: the clients remove them, and a
script may have an option of that name.
"""

from __future__ import annotations

FLAGS = frozenset({"--user-cmd", "--exclusive"})

_HARDWARE = "a job gets slots of this server, with their share of its processors and memory"
_INTERPRETER = "jobs run in the server's interpreter; what it lacks is installed there"
_ACCOUNT = "jobs run under the server's own account"
_CLUSTER = "there are no pods here"
_FORWARDED = "metrics are kept with the job and not forwarded"
_PACKING = "a slot belongs to one job at a time"

HONOURED = frozenset(
    {
        "--exec-start", "--model-main", "--model-dir", "--user-cmd", "--appName", "--consumer", "--ig",
        "--cs-datastore-meta", "--data-source", "--edt-options", "--numWorker", "--gpuPerWorker",
        "--workerDeviceNum", "--msd-env", "--msd-priority", "--msd-pending-timeout", "--debug-level",
        "--pbmodel-name", "--pbmodel-cmd",
    }
)  # fmt: skip
"""Options that mean something here; `args.parse` has a line for each."""

WITHOUT_MEANING: dict[str, str] = {
    "--submit-user": "a job belongs to whoever submits it",
    "--numPs": "there are no parameter servers",
    "--numDriver": "a job has one driver",
    "--workerDeviceType": "a job gets slots of this server, whatever they are",
    "--driverDeviceType": "a driver holds no device",
    "--driverDeviceNum": "a driver holds no device",
    "--workerMemory": _HARDWARE,
    "--driverMemory": _HARDWARE,
    "--workerCPULimit": _PACKING,
    "--workerGPULimit": _PACKING,
    "--workerMemoryLimit": _PACKING,
    "--driverCPULimit": _PACKING,
    "--driverGPULimit": _PACKING,
    "--driverMemoryLimit": _PACKING,
    "--conda-env-name": _INTERPRETER,
    "--conda-home": _INTERPRETER,
    "--conda-env-yaml": _INTERPRETER,
    "--conda-package": _INTERPRETER,
    "--python-version": _INTERPRETER,
    "--sc-runasuser": _ACCOUNT,
    "--sc-runasgroup": _ACCOUNT,
    "--sc-fsgroup": _ACCOUNT,
    "--cs-rmq-meta": _FORWARDED,
    "--cs-url-meta": _FORWARDED,
    "--cs-url-bearer": _FORWARDED,
    "--msd-attr": _CLUSTER,
    "--msd-label": _CLUSTER,
    "--msd-image-name": f"{_CLUSTER}, and no images",
    "--msd-image-pull-secret": f"{_CLUSTER}, and no images",
    "--msd-image-pull-policy": f"{_CLUSTER}, and no images",
    "--msd-task0-node-selector": _CLUSTER,
    "--msd-task12n-node-selector": _CLUSTER,
    "--msd-podaffinity-rule": _CLUSTER,
    "--msd-podaffinity-topology-key": _CLUSTER,
    "--msd-pack-id": _PACKING,
    "--msd-task12n-device-type": "a job gets slots of this server, whatever they are",
    "--lsf-gpu-syntax": "slots are given by this server's scheduler",
    "--exclusive": "a slot always belongs to one job at a time",
    "--mpiarg": "no MPI starts the workers",
    "--accelerators": "a job gets slots of this server, whatever they are",
    "--ddl_opts": "there is no DDL; its workers add gradients by gloo or NCCL",
}
"""Why each other platform option is taken and not followed; it follows "has no meaning here: "."""

SECRET = frozenset({"--cs-url-bearer", "--msd-image-pull-secret", "--cs-rmq-meta", "--cs-url-meta"})
"""Options whose value is not repeated in a remark."""

NO_NEWS = frozenset(
    {
        ("--workerDeviceType", "gpu"), ("--driverDeviceType", "cpu"), ("--msd-task12n-device-type", "gpu"),
        ("--numPs", "0"), ("--numDriver", "1"), ("--driverDeviceNum", "0"),
    }
)  # fmt: skip
"""What a client sends without asking for anything, so that no remark is needed."""
