"""What happens to real programs: one table, which is also the page of the guide (docs/guide/programs.md).

The right programs and those that the self-check finds are run in `update/test_self_check.py`. The others are here.
"""

from __future__ import annotations

import copy
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edt_sdk import callbacks
from edt_sdk.fabric.fabric import FabricModel
from edt_sdk.schemas.errors import EdtError
from edt_sdk.training.checkpoints import model_files
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.order import Order, TestOrder
from edt_sdk.training.update.loader import ShardLoader
from edt_sdk.training.update.update import UpdateEngine
from edt_sdk.training.user import payload
from edt_sdk.training.user.hooks import Hooks
from tests.server.supervisor.test_elastic_agents import noted, running, slots
from tests.training.elastic import programs as own_loops
from tests.training.elastic import test_hf_programs as of_hugging_face
from tests.training.elastic.programs.lines import changed
from tests.training.numeric_job import CPU, one_update, steps_of
from tests.training.update.test_self_check import (
    RIGHT,
    WRONG,
    Parts,
    SentencesWithPadding,
    compiled,
    mixup,
    next_word,
    synchronised,
    with_batch_norm,
)

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "programs.md"


def over(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def logged(caplog: pytest.LogCaptureFixture, make: Callable[[], dict[str, Any]], **options: Any) -> str:
    """What the log says before the first update of a program is committed."""
    parts = Parts(make)
    order = Order(16, (4, 4, 4, 4), 4, 0, 1)
    with caplog.at_level("INFO"):
        engine = UpdateEngine(
            parts.model, parts.optimizer, parts.loss, order=order, seed=0, device=CPU, **options
        )  # fmt: skip
        engine.compute(steps_of(order)[0], range(4), ShardLoader(parts.dataset, parts.collate, 0))
    return caplog.text


def mean_over_words(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), labels.flatten())


def padded(caplog: pytest.LogCaptureFixture) -> str:
    return logged(
        caplog,
        lambda: {"model": next_word(), "dataset": SentencesWithPadding(), "loss_function": mean_over_words},
    )


def mixed(caplog: pytest.LogCaptureFixture) -> str:
    return logged(caplog, lambda: {"fn_batch_collate": mixup}, same_collate=True, test_order=TestOrder(8, (4, 4), 4))


def of_model(make: Callable[[], nn.Module]) -> Callable[[pytest.LogCaptureFixture], str]:
    return lambda caplog: logged(caplog, lambda: {"model": make()})


def fabric(model: nn.Module, optimizer: Any) -> FabricModel:
    return FabricModel(model, lambda: (None, None), F.cross_entropy, optimizer)


def in_place(capsys: pytest.CaptureFixture[str]) -> str:
    model = nn.Linear(2, 2)
    model.compile(backend="eager")
    fabric(model, over(model))
    return capsys.readouterr().err


SAID: dict[str, tuple[Callable[[Any], str], str]] = {
    "a language model with padding, its loss a mean": (padded, 'reduction="sum"'),
    "mixup in the validation too": (mixed, "fn_test_collate=torch.utils.data.default_collate"),
    "BatchNorm and dropout": (of_model(with_batch_norm), "GroupNorm and LayerNorm do not depend on them"),
    "SyncBatchNorm": (of_model(synchronised), "In SyncBatchNorm each part of a batch, here 4 samples"),
    "torch.compile(model)": (of_model(compiled), "the first update takes longer"),
    "model.compile()": (in_place, "torch.compile(model)"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_may_not_be_as_intended_is_said_before_the_first_update(
    name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    look, words = SAID[name]
    assert words in look(capsys if name == "model.compile()" else caplog)


def packed(change: Callable[[nn.Module, torch.optim.Optimizer], object]) -> None:
    model = nn.Linear(2, 2)
    optimizer = over(model)
    change(model, optimizer)
    payload.dump({"model": model, "optimizer": optimizer}, [])


class Logging(torch.optim.SGD):
    """Writes down what it does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.journal = Path("/dev/null").open("w")  # noqa: SIM115


def logging_optimizer() -> None:
    optimizer = Logging(nn.Linear(2, 2))
    with optimizer.journal:
        payload.dump({"optimizer": optimizer}, [])


def shadow(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Would keep an average of the weights."""


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a hook on a parameter": (
        lambda: packed(lambda model, _: model.weight.register_hook(torch.sign)),
        "clip_grad_norm=",
    ),
    "a hook on the optimizer's step": (
        lambda: packed(lambda _, optimizer: optimizer.register_step_post_hook(shadow)),
        "an optimizer class of your own",
    ),
    "a replaced optimizer.step": (
        lambda: packed(lambda _, optimizer: setattr(optimizer, "step", shadow)),
        "an optimizer class of your own",
    ),
    "an attribute of the optimizer that is an open file": (logging_optimizer, "optimizer.journal"),
    "a list of optimizers": (
        lambda: fabric(model := nn.Linear(2, 2), [over(model), over(model)]),
        "class of your own, whose step() calls theirs",
    ),
    "LBFGS": (
        lambda: one_update(model := nn.Linear(3, 1), torch.optim.LBFGS(model.parameters())),
        "whose step() needs no closure",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_the_line_that_mends_it(name: str) -> None:
    attempt, words = REFUSED[name]
    with pytest.raises(EdtError) as refused:
        attempt()
    assert words in f"{refused.value} {refused.value.hint}"


def without_a_checkpoint() -> str:
    return noted(running(2), "runs")


def without_loading_it() -> str:
    world = running(1)
    noted(world, "runs", "saved")
    world.allocate(slots(0, 1))
    world.settle()
    return noted(world, "runs", "saved")


def with_a_trainer() -> str:
    return noted(running(1), "runs", "counts_workers", "saved")


HELD: dict[str, tuple[Callable[[], str], str]] = {
    "a torchrun script without a checkpoint": (without_a_checkpoint, "Write one with torch.save"),
    "a torchrun script that loads no checkpoint of its own": (without_loading_it, "Load the newest checkpoint"),
    "a Hugging Face Trainer under torchrun": (with_a_trainer, "EDT_UNITS_HERE"),
}


@pytest.mark.parametrize("name", HELD)
def test_a_script_that_another_size_would_harm_keeps_its_size(name: str) -> None:
    reason, words = HELD[name]
    assert words in reason()


class Average(callbacks.Callback):
    """Keeps a moving average of the weights, as a whole model."""

    average: nn.Module | None = None

    def on_epoch_end(self, epoch: int) -> None:
        if self.average is None:
            self.average = copy.deepcopy(self.model)
        for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.data.lerp_(now.data, 0.5)


def an_average_moves_with_rank_0() -> None:
    alone = Group(None, 0, 1, device=CPU, interface="127.0.0.1", generation=1)
    model = nn.Linear(2, 2)
    members = [Hooks([Average()], model, over(model), 4, 0) for _ in range(3)]
    whole, first, second = members
    for epoch in range(4):
        with torch.no_grad():
            model.weight.add_(1)
        for hooks in (whole, first if epoch < 2 else second):
            hooks.run(alone, epoch, "on_epoch_end", epoch, done=lambda: None)
        if epoch == 1:
            second.adopt(first.frozen)  # as the next rank 0 does, or a resume from a checkpoint
    expected, moved = (hooks._callbacks[0].average.weight for hooks in (whole, second))
    assert torch.equal(expected, moved)
    assert not torch.equal(expected, model.weight)


def a_second_training_continues(folder: Path) -> None:
    trained, fresh = (Parts(lambda: {"scheduler": halving}) for _ in range(2))
    for _ in range(3):
        trained.optimizer.step()
        trained.scheduler.step()
    model_files.save(folder, model_files.FINAL, trained.model, trained.optimizer)
    model_files.save_schedule(folder, trained.optimizer, trained.scheduler)
    model_files.load_optimizer(folder, fresh.optimizer, fresh.scheduler)
    fresh.scheduler.step()
    trained.scheduler.step()
    assert fresh.optimizer.param_groups[0]["lr"] == trained.optimizer.param_groups[0]["lr"] == 0.05 / 16


def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def test_an_average_in_a_callback_and_a_second_training_go_on(tmp_path: Path) -> None:
    an_average_moves_with_rank_0()
    a_second_training_continues(tmp_path)


def table() -> dict[str, str]:
    """Each program of this file, and the word for what happens to it."""
    words = dict.fromkeys(RIGHT, "trains right") | dict.fromkeys(WRONG, "found")
    words |= {name.replace("_", " "): "trains right" for name in own_loops.PROGRAMS}  # elastic/test_own_programs.py
    words |= {name.replace("_", " "): "trains right" for name in of_hugging_face.NAMES}
    words |= dict.fromkeys(["a second train()", "an EMA in a user_callback"], "trains right")
    return words | dict.fromkeys(SAID, "said") | dict.fromkeys(REFUSED, "refused") | dict.fromkeys(HELD, "held")


def test_the_page_has_every_program_and_what_happens_to_it() -> None:
    # Lightning takes seconds to import, so its programs have a test of their own (elastic/test_lightning_programs.py).
    page = re.sub(r"^## With Lightning.*?^(?=## )", "", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (.+?) \| (trains right|found|said|refused|held) \|", page, re.MULTILINE)
    listed = {name.replace("\\", ""): word for name, word in rows}
    assert listed == table()
    assert len(listed) == len(rows), "a program is listed twice"


def test_the_page_has_the_lines_that_change_in_each_loop() -> None:
    page = PAGE.read_text()
    listed = dict(re.findall(r"^\| ([^|]+?) \|[^|]+\|[^|]+\| (\d+) \|$", page, re.MULTILINE))
    counts = {name.replace("_", " "): changed(program) for name, program in own_loops.PROGRAMS.items()}
    assert {name: int(count) for name, count in listed.items()} == counts
    middle = statistics.median(counts.values())
    assert middle <= 6
    assert f"change, {middle:g} in the middle" in page
