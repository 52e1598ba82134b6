"""Translate a torchrun command line into the fields of a job. Pure, and without torch.

It accepts the options of `torchrun` (torch 2.13), of `python -m torch.distributed.launch` and of the older `python -m
torchelastic.distributed.launch`, with dashes or underscores. torch's own parser is not available, because neither the
server nor the command line imports torch. The number of nodes becomes the number of slots. The supervisor decides how
the nodes find each other, so those options are accepted, ignored, and listed in `TorchrunOptions.said`.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.torchrun import TorchrunOptions

_NODES = re.compile(r"(\d+)(?::(\d+))?\Z")
# Counts of a machine's devices. They have no meaning for a job, which gets its slots separately.
_MACHINE = frozenset({"auto", "gpu", "cpu", "xpu"})
_FIELD = "torchrun"

# How processes find each other.
_MEETING = (
    "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "node-rank", "master-addr", "master-port", "local-addr",
)  # fmt: skip
# Where their output goes.
_LOGS = (
    "log-dir", "redirects", "tee", "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters",
    "logs-specs",
)  # fmt: skip
_UNUSED = {
    "start-method": "it only applies to functions, and a script always has a separate process",
    "event-log-handler": "a job's events are in its story and its timeline",
    "numa-binding": "processes are not bound to the cores of a memory node here",
    "signals-to-handle": "processes are ended by SIGTERM, and later by SIGKILL",
}
_SHORT = {"redirects": ("-r",), "tee": ("-t",)}
# Options that are always torchrun's. A script with an option of the same name must leave it to torchrun.
_UNMISTAKABLE = frozenset(
    {"nnodes", "nproc-per-node", "max-restarts", "monitor-interval", "standalone",
     "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"}
)  # fmt: skip
_FLAGS = ("no-python", "run-path", "use-env", "virtual-local-rank", "standalone", "with-etcd")
_LAUNCH = "edt-launch"


@dataclass(frozen=True, slots=True)
class TorchrunCommand:
    """Holds a parsed command line.

    Attributes:
        script: the script, module (`options.module`) or program (`options.no_python`), "" if none was named.
        args: its own arguments.
        nodes: least and most nodes, None without `--nnodes`.
        per_node: processes per node, None without `--nproc-per-node` or where it names a machine's devices.
        options: the rest.
    """

    script: str
    args: tuple[str, ...]
    nodes: tuple[int, int] | None
    per_node: int | None
    options: TorchrunOptions

    def fields(self, *, max_workers: int = 1, min_workers: int = 1, slots_per_unit: int = 1) -> dict[str, Any]:
        """Return the resulting fields of `JobSpec`: `torchrun`, and the numbers of workers in slots.

        The arguments are used where the command line does not name them.
        """
        unit = slots_per_unit if self.per_node is None else self.per_node
        if self.nodes is not None:
            min_workers, max_workers = self.nodes[0] * unit, self.nodes[1] * unit
        else:
            # A caller that sets nothing passes 1. A job needs at least one whole node.
            max_workers = max(max_workers, unit)
        if self.options.units % unit:
            raise _refuse(
                f"--units={self.options.units} cannot be shared by nodes of {unit} processes.",
                hint=f"Use a multiple of {unit}, which 1, 2, 3, … nodes can share: --units={12 * unit}.",
            )
        sizes = {"max_workers": max_workers, "min_workers": min_workers, "slots_per_unit": unit}
        return {**sizes, "torchrun": self.options}


def parse(words: Sequence[str] | str) -> TorchrunCommand:
    """Parse a command line. A text is split like in a shell.

    The line may start with the command's own name: `torchrun`, or `python -m` and the module's.

    Raises:
        Unprocessable: an unknown option, or an invalid value. `field` is "torchrun".
    """
    if isinstance(words, str):
        try:
            words = shlex.split(words)
        except ValueError as wrong:
            raise _refuse(f"The options of torchrun cannot be split into words: {wrong}.") from None
    found = _parser().parse_args(_options_of(list(words)))
    rest: list[str] = list(found.rest)
    if rest[:1] == ["--"]:
        del rest[0]
    if found.no_python and found.module:
        raise _refuse("--no-python and --module exclude each other.")
    said: list[str] = []
    per_node = None if found.nproc_per_node is None else _per_node(found.nproc_per_node, said)
    options = TorchrunOptions(
        **{name: value for name, value in vars(found).items() if name in TorchrunOptions.__struct_fields__},
        local_rank_argument=found.edt_launch and not found.use_env,
        said=tuple([*said, *_said(found)]),
    ).check()
    nodes = None if found.nnodes is None else _nodes(found.nnodes)
    return TorchrunCommand("".join(rest[:1]), tuple(rest[1:]), nodes, per_node, options)


def sorted_out(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a line into options that are certainly torchrun's, and all other words.

    For lines in which torchrun's options and the script's are mixed. An option that both may have (`--role`,
    `--log-dir`, `-m`, …) belongs to the script.
    """
    options: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, _ = word.partition("=")
        name = option[2:].replace("_", "-")
        if not option.startswith("--") or name not in _UNMISTAKABLE:
            others.append(word)
            continue
        options.append(word)
        if not equals and name not in _FLAGS:
            options += rest[:1]  # `parse` reports a missing value
            del rest[:1]
    return options, others


def names_torchrun(words: Sequence[str]) -> bool:
    """Return whether the command line starts with a launcher that `parse` knows, under any of its names."""
    line = list(words)
    return _options_of(line) != line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _refuse(f"torchrun's options: {message}.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="torchrun", add_help=False)

    def add(name: str, *short: str, **how: Any) -> None:
        parser.add_argument(*short, *dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}")), **how)

    # Our own flag: `_options_of` sets it for the launchers that pass the rank as an argument.
    add(_LAUNCH, action="store_true", help=argparse.SUPPRESS)
    add("nnodes")
    add("nproc-per-node")
    # torchrun's own default is no restart. Changes of membership do not count as one (docs/decisions/023).
    add("max-restarts", type=int, default=0)
    # No option of torchrun's: without it a script's batch grows with the number of its processes.
    add("units", type=int, default=TorchrunOptions().units)
    add("monitor-interval", type=float, default=TorchrunOptions().monitor_interval)
    add("shutdown-timeout", type=int, default=TorchrunOptions().shutdown_timeout)
    add("role", default=TorchrunOptions().role)
    for flag in _FLAGS:
        add(flag, action="store_true")
    add("module", "-m", action="store_true")
    for name in (*_MEETING, *_LOGS, *_UNUSED):
        add(name, *_SHORT.get(name, ()))
    # From the script on every word is the script's, also one that looks like an option of torchrun.
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


def _options_of(words: list[str]) -> list[str]:
    """Strip the command's own name. Only `torch.distributed.launch` passes the rank as an argument."""
    if words and words[0].rpartition("/")[2] == "torchrun":
        return words[1:]
    if len(words) > 2 and words[0].rpartition("/")[2].startswith("python") and "-m" in words[1:3]:
        at = words.index("-m")
        module, rest = words[at + 1], words[at + 2 :]
        if module == "torch.distributed.launch":
            return [f"--{_LAUNCH}", *rest]
        if module in ("torch.distributed.run", "torchelastic.distributed.launch"):
            return rest
    return words


def _nodes(text: str) -> tuple[int, int]:
    match = _NODES.match(text)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        raise _refuse(
            f"--nnodes={text} is no number of nodes.", hint="Use --nnodes=4, or --nnodes=1:4 for one to four nodes."
        )
    return least, most


def _per_node(text: str, said: list[str]) -> int | None:
    if text in _MACHINE:
        said.append(
            f"--nproc-per-node={text} counts the devices of a machine, but here a node has the submission's number of "
            "slots (slots_per_unit, default 1)"
        )
        return None
    if not text.isdecimal() or int(text) < 1:
        raise _refuse(
            f"--nproc-per-node={text} is no number of processes.", hint="Use --nproc-per-node=8 for units of eight."
        )
    return int(text)


def _said(found: argparse.Namespace) -> list[str]:
    said: list[str] = []
    # The supervisor names the members and the store of every round, so there is no rendezvous to configure
    # (docs/decisions/023).
    meeting = _given(found, _MEETING) + [
        f"--{name}" for name in ("standalone", "with-etcd") if getattr(found, name.replace("-", "_"))
    ]
    if meeting:
        said.append(f"{_listed(meeting)}: not needed, the job's supervisor gives its processes their rendezvous")
    logs = _given(found, _LOGS)
    if logs:
        said.append(f"{_listed(logs)}: not used, the output of every process is in the job's logs")
    for name, why in _UNUSED.items():
        said += [f"{option}: not used, {why}" for option in _given(found, (name,))]
    return said


def _given(found: argparse.Namespace, names: Sequence[str]) -> list[str]:
    values = {name: getattr(found, name.replace("-", "_")) for name in names}
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def _listed(options: Sequence[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} and {options[-1]}"


def _refuse(message: str, hint: str = "") -> Unprocessable:
    return Unprocessable(message, hint=hint or "`torchrun --help` lists the options.", field=_FIELD)
