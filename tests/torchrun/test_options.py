"""torchrun's command line, in the words of a job."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.torchrun.command_line.options import names_torchrun, parse, sorted_out


def spec(words: str, **given: int) -> JobSpec:
    command = parse(words)
    return JobSpec(
        name="x", main=command.script or "train.py", framework="torchrun", args=command.args, **command.fields(**given)
    ).check()


def test_nodes_of_eight_processes_become_units_of_eight_slots():
    job = spec("--nnodes=1:4 --nproc_per_node=8 train.py --lr 0.1")
    assert (job.min_workers, job.max_workers, job.slots_per_unit) == (8, 32, 8)
    assert (job.main, job.args) == ("train.py", ("--lr", "0.1"))


def test_one_number_of_nodes_is_least_and_most():
    job = spec("--nnodes 3 train.py")
    assert (job.min_workers, job.max_workers) == (3, 3)


@pytest.mark.parametrize("style", ["-", "_"])
def test_dashes_and_underscores(style: str):
    words = ["nproc-per-node=2", "max-restarts=5", "monitor-interval=0.2", "rdzv-backend=c10d", "no-python"]
    command = parse([*(f"--{word.replace('-', style)}" for word in words), "train"])
    assert (command.per_node, command.options.max_restarts, command.options.no_python) == (2, 5, True)


def test_what_looks_like_an_option_behind_the_script_is_the_scripts():
    command = parse("--nnodes=2 train.py --nnodes=9 --rdzv-id=7 -m --unheard-of")
    assert command.args == ("--nnodes=9", "--rdzv-id=7", "-m", "--unheard-of")
    assert command.nodes == (2, 2)
    assert not command.options.module
    assert command.options.said == ()


def test_a_module_and_no_script():
    assert parse("-m pkg.train a").options.module
    assert parse("--nnodes=1:2").script == ""


def test_every_rendezvous_option_is_taken_and_said():
    options = "--rdzv-backend=etcd --rdzv_endpoint=h:1 --rdzv-id 7 --rdzv_conf=timeout=3"
    command = parse(f"{options} --master-addr=h --master_port=2 --node_rank=1 --local-addr h --standalone train.py")
    (said,) = command.options.said
    for option in ("--rdzv-backend=etcd", "--rdzv-endpoint=h:1", "--rdzv-id=7", "--rdzv-conf=timeout=3"):
        assert option in said
    assert "supervisor" in said
    assert command.script == "train.py"


def test_logging_options_are_taken_and_said():
    said = " ".join(parse("-r 3 -t 1 --log_dir=/tmp/x --start-method=fork train.py").options.said)
    assert "--redirects=3" in said
    assert "--log-dir=/tmp/x" in said
    assert "--start-method=fork" in said


@pytest.mark.parametrize(
    ("words", "handed_on"),
    [
        ("torchrun --nnodes=2 t.py", False),
        ("/opt/bin/torchrun --nnodes=2 t.py", False),
        ("python -m torch.distributed.run --nnodes=2 t.py", False),
        ("python3 -m torchelastic.distributed.launch --nnodes=2 --with_etcd t.py", False),
        ("python -m torch.distributed.launch --nnodes=2 t.py", True),
        ("python -m torch.distributed.launch --use_env --nnodes=2 t.py", False),
    ],
)
def test_the_commands_own_name_may_stand_in_front(words: str, handed_on: bool):
    command = parse(words)
    assert (command.script, command.nodes, command.options.local_rank_argument) == ("t.py", (2, 2), handed_on)


def test_a_number_of_devices_is_what_the_submission_says_and_said():
    command = parse("--nproc-per-node=gpu train.py")
    assert command.fields()["slots_per_unit"] == 1
    assert command.fields(slots_per_unit=4, max_workers=8)["slots_per_unit"] == 4
    assert "gpu" in command.options.said[0]


def test_without_nodes_the_jobs_own_maximum_counts():
    assert spec("--max-restarts=2 train.py", max_workers=4).max_workers == 4
    assert spec("--nproc-per-node=2 train.py", max_workers=4).slots_per_unit == 2
    assert spec("--nproc-per-node=2 train.py").max_workers == 2


@pytest.mark.parametrize(
    "words",
    [
        "--nnodes=4:1 t.py",
        "--nnodes=0 t.py",
        "--nnodes=two t.py",
        "--nproc-per-node=0 t.py",
        "--nproc-per-node=x t.py",
        "--max-restarts=-1 t.py",
        "--max-restarts=x t.py",
        "--monitor-interval=0 t.py",
        "--shutdown-timeout=-1 t.py",
        "--unheard-of=1 t.py",
        "--no-python -m t",
        "'t.py",
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(words: str):
    with pytest.raises(Unprocessable) as refused:
        parse(words)
    assert refused.value.message.endswith(".")
    assert refused.value.ids["field"]


def test_every_option_of_the_installed_torchrun_is_known():
    """torch's own parser, in a process of its own: what it takes is taken here."""
    listing = (
        "from torch.distributed.run import get_args_parser\n"
        "for a in get_args_parser()._actions:\n"
        "    if a.option_strings and '--help' not in a.option_strings:\n"
        "        print(*a.option_strings, '' if a.nargs == 0 else '=', sep='\\t')\n"
    )
    said = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    values = {"nnodes": "2", "nproc": "2", "max": "2", "monitor": "1", "shutdown": "1"}
    lines = said.stdout.splitlines()
    assert len(lines) > 25
    for line in lines:
        *names, value = line.split("\t")
        for name in names:
            stem = name.lstrip("-").replace("_", "-").split("-")[0]
            words = [name, values.get(stem, "3")] if value == "=" else [name]
            assert parse([*words, "train.py"]).script == "train.py", shlex.join(words)


def test_a_launcher_is_known_under_its_names():
    for line in ("torchrun a.py", "/opt/bin/torchrun --nnodes=2 a.py", "python3 -u -m torch.distributed.run a.py"):
        assert names_torchrun(line.split())
    for line in ("train.py --nnodes=2", "python train.py", "bash torchrun.sh"):
        assert not names_torchrun(line.split())


def test_options_are_sorted_out_of_a_line_with_the_script_s():
    line = "--lr 1 --nnodes=1:2 --rdzv_backend c10d --standalone --role x --max-restarts"
    options, others = sorted_out(line.split())
    assert options == ["--nnodes=1:2", "--rdzv_backend", "c10d", "--standalone", "--max-restarts"]
    assert others == ["--lr", "1", "--role", "x"]
