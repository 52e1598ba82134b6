"""What survives the way into a payload and out of it, in another process, and what is refused on the way."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.user import payload
from edt_sdk.training.user.culprit import find_culprit
from edt_sdk.training.user.own_modules import own_modules
from edt_sdk.training.user.payload import Training, TrainOptions


def training(model: nn.Module, **parts: object) -> Training:
    optimizer = parts.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    parts.setdefault("datasets_function", dict)
    return Training(
        model=model,
        loss_function=nn.functional.cross_entropy,
        optimizer=optimizer,
        options=TrainOptions(epochs=1, micro_batch=2, shards=(2, 2)),
        **parts,
    )


def through(packed: Training, path: Path, roots: tuple[Path, ...] = ()) -> Training:
    payload.write(path, payload.pack(packed, roots))
    return payload.read(path)


class Lookahead(torch.optim.Optimizer):
    """Keeps another optimizer and slow weights, as the usual implementations do, without a `__getstate__`."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__([parameter for group in inner.param_groups for parameter in group["params"]], {})
        self.param_groups = inner.param_groups
        self.slow = [[p.detach().clone() for p in group["params"]] for group in inner.param_groups]


def test_an_optimizer_arrives_with_the_optimizer_inside_and_all_it_keeps(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    read = through(training(model, optimizer=Lookahead(torch.optim.Adam(model.parameters(), lr=0.2))), tmp_path / "p")
    optimizer = read.optimizer
    assert isinstance(optimizer, Lookahead)
    assert optimizer.param_groups is optimizer.inner.param_groups
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in read.model.parameters()]
    assert torch.equal(optimizer.slow[0][0], model.weight)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.lock = threading.Lock()
    with pytest.raises(Unprocessable, match=r"optimizer\.lock cannot be sent to the workers: it is a lock"):
        payload.pack(training(model, optimizer=optimizer), ())


def forgets(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """A hook, such as one that averages weights."""


class Clamps(nn.Linear):
    """Registers its hook again where it is unpickled."""

    def __setstate__(self, content: dict[str, Any]) -> None:
        super().__setstate__(content)
        self.weight.register_hook(torch.sign)


def test_a_hook_that_the_workers_would_not_have_is_refused_by_its_name(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    stepping = torch.optim.SGD(model.parameters(), lr=0.1)
    stepping.register_step_post_hook(forgets)
    with pytest.raises(Unprocessable, match=r"optimizer\.register_step_post_hook\(forgets\) cannot be sent") as refused:
        payload.pack(training(model, optimizer=stepping), ())
    assert "step() of an optimizer class of your own" in refused.value.hint
    replaced = torch.optim.SGD(model.parameters(), lr=0.1)
    replaced.step = forgets  # type: ignore[method-assign]
    with pytest.raises(Unprocessable, match=r"optimizer\.step = forgets cannot"):
        payload.pack(training(model, optimizer=replaced), ())
    for verb in ("register_hook", "register_post_accumulate_grad_hook"):
        model = nn.Linear(2, 1)
        getattr(model.weight, verb)(torch.sign)
        with pytest.raises(Unprocessable, match=rf"model\.weight\.{verb}\(sign\) cannot") as refused:
            payload.pack(training(model), ())
        assert "clip_grad_norm" in refused.value.hint


def test_a_hook_that_the_copy_registers_again_and_a_scheduler_s_wrapper_are_no_reason_to_refuse(tmp_path: Path) -> None:
    model = Clamps(2, 1)
    model.weight.register_hook(torch.sign)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    read = through(training(model, optimizer=optimizer, lr_scheduler=scheduler), tmp_path / "p")
    assert len(read.model.weight._backward_hooks) == 1
    assert read.lr_scheduler.optimizer is read.optimizer


def test_code_keeps_the_name_of_its_file(tmp_path: Path) -> None:
    def here() -> int:
        return (lambda: 1)()

    read = through(training(nn.Linear(1, 1), datasets_function=here), tmp_path / "p").datasets_function
    inner = next(each for each in read.__code__.co_consts if hasattr(each, "co_filename"))
    assert {read.__code__.co_filename, inner.co_filename} == {__file__}
    assert read() == 1


def test_the_optimizer_holds_the_models_own_parameters(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.detach().clone())
    model.tied = model[0].weight
    optimizer = torch.optim.Adam([{"params": model[0].parameters(), "lr": 0.1}, {"params": [model[1].weight]}])

    class Keeps:
        def __init__(self) -> None:
            self.optimizer = optimizer

    read = through(training(model, optimizer=optimizer, callbacks=[Keeps()]), tmp_path / "p")
    held = [p for group in read.optimizer.param_groups for p in group["params"]]
    assert [id(p) for p in held] == [id(p) for p in read.model.parameters()]
    assert read.model.tied is read.model[0].weight
    assert read.callbacks[0].optimizer is read.optimizer
    assert [g["lr"] for g in read.optimizer.param_groups] == [0.1, 0.001]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10),
        lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.StepLR(optimizer, 1)],
            [2],
        ),
    ],
)
def test_a_schedule_arrives_over_the_optimizer_that_arrives_with_it(tmp_path: Path, make: Any) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = make(optimizer)
    read = through(training(model, optimizer=optimizer, lr_scheduler=schedule), tmp_path / "p")
    assert read.lr_scheduler.optimizer is read.optimizer
    assert read.lr_scheduler.get_last_lr() == schedule.get_last_lr()


def test_the_file_is_private_and_says_what_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "training-0.payload"
    payload.write(path, payload.pack(training(nn.Linear(1, 1)), ()))
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_bytes().split(b"\n", 1)[0]) == {
        "edt_payload": 1,
        "python": "{}.{}".format(*sys.version_info),
        "torch": torch.__version__,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(OSError, match="p"):
        payload.write(tmp_path / "p", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


class Bomb:
    def __reduce__(self) -> object:
        return os.system, ("touch exploded",)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b'{"edt_payload": 1, "python": "3.4", "torch": "2"}\n', "Python 3.4"),
        (b'{"edt_payload": 99, "python": "3.11", "torch": "2"}\n', "format 99"),
        (b"\x80\x05\n", "not what"),
        (b"", "not what"),
    ],
)
def test_a_foreign_payload_is_refused_before_it_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p"
    path.write_bytes(header + cloudpickle.dumps(Bomb()))
    with pytest.raises(Unprocessable, match=said):
        payload.read(path)
    assert not (tmp_path / "exploded").exists()


def test_a_module_of_the_folder_travels_with_its_globals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "my_model_parts.py").write_text(
        "from torch import nn\nROOT = None\nclass Net(nn.Linear):\n    def root(self):\n        return ROOT\n"
    )
    monkeypatch.syspath_prepend(str(code))
    parts = importlib.import_module("my_model_parts")
    try:
        parts.ROOT = "set by the script"
        payload.write(tmp_path / "p", payload.pack(training(parts.Net(2, 2)), (code,)))
    finally:
        del sys.modules["my_model_parts"]
    assert not cloudpickle.list_registry_pickle_by_value()
    elsewhere = "import sys, pathlib; from edt_sdk.training.user import payload; " + (
        "t = payload.read(pathlib.Path(sys.argv[1])); print(t.model.root(), 'my_model_parts' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", elsewhere, str(tmp_path / "p")], capture_output=True, text=True, cwd="/", check=True
    )
    assert done.stdout.split() == ["set", "by", "the", "script", "False"]


def test_installed_packages_below_the_folder_do_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    for folder, name in ((installed, "edt_test_installed"), (tmp_path, "edt_test_own")):
        (folder / f"{name}.py").write_text("")
        monkeypatch.syspath_prepend(str(folder))
        importlib.import_module(name)
    assert [m.__name__ for m in own_modules([tmp_path])] == ["edt_test_own"]
    repository = Path(payload.__file__).parents[3]
    assert not [m for m in own_modules([repository]) if m.__name__.startswith(("edt_sdk", "torch", "json"))]


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.handle = threading.Lock()


def test_what_cannot_be_pickled_is_named() -> None:
    nested = nn.ModuleDict({"deep": nn.Sequential(nn.ReLU(), Holding())})
    with pytest.raises(Unprocessable, match=r"model\.deep\.1\.handle .* is a lock") as refused:
        payload.pack(training(nested), ())
    assert "__getstate__" in refused.value.hint

    lock = threading.Lock()
    with pytest.raises(Unprocessable, match=r"lock \(used by datasets_function\)"):
        payload.pack(training(nn.Linear(1, 1), datasets_function=lambda: lock), ())
    with pytest.raises(Unprocessable, match=r"user_callback\[0\]\['x'\]"):
        payload.pack(training(nn.Linear(1, 1), callbacks=[{"x": lock}]), ())
    assert not cloudpickle.list_registry_pickle_by_value()


def test_the_search_names_the_innermost_part() -> None:
    lock = threading.Lock()

    class Slotted:
        __slots__ = ("inner",)

        def __init__(self) -> None:
            self.inner = [1, {"k": lock}]

    cycle: list[object] = []
    cycle += [cycle, lock]
    for value, path in (
        (Slotted(), "x.inner[1]['k']"),
        (cycle, "x[1]"),
        (functools.partial(print, sep=lock), "x.keywords['sep']"),
        (lock, "x"),
    ):
        assert find_culprit("x", value) == (path, lock)
    assert find_culprit("x", [1, "fine"]) is None
