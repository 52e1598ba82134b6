"""Make a `JobSpec` of what a WMLA client submits. Pure.

`Arguments` is the command line. `form` is the optional JSON of the request: `dataSource`, or from 4.x on `args` and
`hardwareSpec`. Settings that cannot be followed become remarks in the job's `wmla` part.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.frameworks import OFFERED, SHELL, Framework, framework_named
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobSpec
from edt_sdk.schemas.registered import WmlaRequest
from edt_sdk.torchrun.command_line.options import TorchrunCommand
from edt_server.wmla import torchelastic
from edt_server.wmla.args import Arguments, parse

DATASTORE_VARIABLE = "DLI_CS_DATASTORE_META"
LEVEL_VARIABLE = "DLI_LOGGER_LEVEL"


def arguments_of(args: str | None, form: Mapping[str, Any]) -> Arguments:
    """Return the parsed command line of a request: its `args` query, else the `args` of its form."""
    text = form.get("args") if not (args or "").strip() else args
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest(
            "The request has no args.",
            hint="Send args=--exec-start PyTorch --model-main train.py in the query, or args in the form's data.",
            field="args",
        )
    return parse(text)


def job_spec(
    arguments: Arguments,
    *,
    sig_name: str = "",
    form: Mapping[str, Any] | None = None,
    code_dir: str = "",
    slots: int = 1,
) -> JobSpec:
    """Return the job that a request asks for, checked. `slots` bounds an elastic job that names no number of workers.

    `sig_name` is an instance group, and `--ig` counts where it is "". `code_dir` is the package's one top folder, or ""
    where the files lie at the top.
    """
    form = form or {}
    framework = _framework(arguments)
    remarks = list(arguments.remarks)
    torchrun: TorchrunCommand | None = None
    if framework is Framework.TORCHRUN:
        arguments, torchrun = torchelastic.started(arguments)
    workers, devices = _size(arguments, form, remarks)
    if torchrun is not None:
        devices = torchrun.per_node or devices
        if torchrun.nodes is not None and (workers or arguments.max_workers):
            remarks.append("--numWorker and maxWorkers are not used: --nnodes says how many workers there may be.")
    least, most, unit = _slots(framework, workers, devices, arguments.max_workers, slots, remarks)
    started: dict[str, Any] = {"max_workers": most, "min_workers": least, "slots_per_unit": unit}
    if torchrun is not None:
        started = torchrun.fields(**started)
    data_path = _data_path(arguments, form, remarks)
    if arguments.consumer:
        remarks.append(f"--consumer {arguments.consumer} is kept and shown; jobs wait in an instance group.")
    return JobSpec(
        name=(arguments.app_name or arguments.model_dir or PurePosixPath(arguments.main).stem or framework)[:200],
        main="" if arguments.command else _main(arguments),
        command=(*SHELL, arguments.command) if arguments.command else (),
        framework=framework.value,
        code_dir=code_dir,
        args=arguments.script,
        env=_env(arguments),
        priority=arguments.priority or DEFAULT_PRIORITY,
        instance_group=sig_name or arguments.instance_group,
        pending_timeout=arguments.pending_timeout,
        data_path=data_path,
        log="batches",  # WMLA's clients read these lines
        wmla=WmlaRequest(
            args=arguments.text,
            app_name=arguments.app_name,
            sig_name=sig_name or arguments.instance_group,
            consumer=arguments.consumer,
            remarks=tuple(remarks),
        ),
        **started,
    ).check()


def _framework(arguments: Arguments) -> Framework:
    if not arguments.framework:
        raise InvalidRequest(
            "args names no framework.",
            hint=f"Begin it with --exec-start and one of {', '.join(OFFERED)}.",
            field="--exec-start",
        )
    return framework_named(arguments.framework)


def _main(arguments: Arguments) -> str:
    if arguments.main:
        return arguments.main
    if arguments.prebuilt:
        raise InvalidRequest(
            f"There is no prebuilt model {arguments.prebuilt!r} here.",
            hint="Submit a script of your own with --model-main.",
            field="--pbmodel-name",
        )
    raise InvalidRequest(
        "args names no script.",
        hint="Say --model-main and its file, or --user-cmd and a command behind `--`.",
        field="--model-main",
    )


def _env(arguments: Arguments) -> dict[str, str]:
    said = {DATASTORE_VARIABLE: arguments.datastore, LEVEL_VARIABLE: arguments.debug_level}
    return {name: value for name, value in said.items() if value} | arguments.env


# --- how many slots ---------------------------------------------------------------------------------------------------


def _size(arguments: Arguments, form: Mapping[str, Any], remarks: list[str]) -> tuple[int | None, int]:
    """Return the workers (None when not given) and the devices of each. The form takes precedence over the options."""
    workers, devices = arguments.workers, arguments.devices
    spec = form.get("hardwareSpec")
    if spec is None:
        return workers, devices or 1
    if not isinstance(spec, Mapping) or not isinstance(spec.get("nodes", {}), Mapping):
        raise InvalidRequest("hardwareSpec is an object with nodes.", field="hardwareSpec")
    nodes: Mapping[str, Any] = spec.get("nodes", {})
    workers = _whole("num_nodes", nodes.get("num_nodes")) or workers
    gpu = nodes.get("gpu") or {}
    if not isinstance(gpu, Mapping):
        raise InvalidRequest("hardwareSpec.nodes.gpu is an object with num_gpu.", field="hardwareSpec")
    devices = _whole("gpu.num_gpu", gpu.get("num_gpu")) or devices
    ignored = [key for key in ("cpu", "mem", "drivers", "num_drivers") if nodes.get(key)]
    ignored += [key for key in ("gpu_profile", "mig_profile") if gpu.get(key)]
    ignored += [key for key in ("name", "id") if spec.get(key)]
    if ignored:
        remarks.append(
            f"hardwareSpec's {', '.join(ignored)} has no meaning here: "
            "a job gets slots of this server, with their share of its processors and memory."
        )
    return workers, devices or 1


def _whole(name: str, value: Any) -> int | None:
    """Return None for a missing number and for 0, which means a node without a GPU."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    # In Python a bool is an int: `true` would be one GPU.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"hardwareSpec.nodes.{name} is a whole number, not {value!r}.", field="hardwareSpec")
    return value or None


def _slots(
    framework: Framework, workers: int | None, devices: int, bound: int | None, slots: int, remarks: list[str]
) -> tuple[int, int, int]:
    """Return min_workers, max_workers and slots_per_unit."""
    match framework:
        case Framework.EDT:
            # An elastic job starts on one slot and grows, so the request's size is only its maximum.
            bounds = [each for each in (bound, workers and workers * devices) if each]
            return 1, min(bounds, default=max(1, slots)), 1
        case Framework.PYTORCH:
            if workers is not None and workers > 1:
                remarks.append(f"{workers} workers were asked for: PyTorch runs the script once; see distPyTorch.")
            # One process has all devices, so its size cannot change while it runs (docs/decisions/022).
            return devices, devices, devices
        case Framework.DIST:
            # torch.distributed has a fixed number of ranks, so such a job is rigid: least and most are equal
            # (docs/decisions/022).
            size = (workers or bound or 1) * devices
            return size, size, devices
        case Framework.SERVE:
            raise Unprocessable("A deployment is no job to submit.", hint="Deploy a version.", field="framework")
        case Framework.TORCHRUN:
            # One unit is enough to start, because every change of membership starts a new round (docs/decisions/023).
            size = (workers or bound or max(1, slots // devices)) * devices
            return devices, size, devices


# --- data -------------------------------------------------------------------------------------------------------------


def _data_path(arguments: Arguments, form: Mapping[str, Any], remarks: list[str]) -> str:
    """Return the path below the server's data folder: the data source's, else the data store's."""
    # dlicmd takes --data-source out of the line and sends it in the form. A data source wins over --cs-datastore-meta,
    # which the same line may still contain.
    sources = form.get("dataSource", arguments.data_source)
    if sources is None or sources == []:
        return arguments.data_path
    if isinstance(sources, Mapping):
        sources = [sources]
    if not isinstance(sources, list) or not all(isinstance(each, Mapping) for each in sources):
        raise InvalidRequest(
            "dataSource is a list of objects.",
            hint='Write it as [{"type": "fs", "location": {"paths": "mnist"}}].',
            field="dataSource",
        )
    paths: list[str] = []
    for source in sources:
        if source.get("type") == "fs":
            paths += _paths(source)
        else:
            remarks.append(
                f"A data source of type {source.get('type')} has no meaning here: "
                "data are read from the server's data folder."
            )
    if len(paths) > 1:
        remarks.append(f"DATA_DIR is {paths[0]}; the other paths of the data source lie beside it: {paths[1:]}.")
    return paths[0] if paths else arguments.data_path


def _paths(source: Mapping[str, Any]) -> list[str]:
    location = source.get("location")
    found = location.get("paths", location.get("path", "")) if isinstance(location, Mapping) else location
    listed = found.split(",") if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise InvalidRequest("The location of a data source is an object with paths.", field="dataSource")
    return [each.strip().strip("/") for each in listed if each.strip().strip("/")]
