"""Sort what a script gives to `elastic()`: models, optimizers, and whatever else has a `state_dict()`.

All of it travels to workers that join, and is part of each checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.training.state.several_optimizers import SeveralOptimizers


class Things:
    """Holds the objects of a script by the names that it gave them.

    Attributes:
        modules: each of them.
        model: all modules, as one.
        optimizer: all optimizers, as one that is never stepped.
        optimizers: each of them.
        others: schedulers, scalers, counters and the like.

    Raises:
        InvalidRequest: there is no model or no optimizer, or an object has no state that could travel.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.modules = modules = {name: each for name, each in given.items() if isinstance(each, nn.Module)}
        self.optimizers = {name: each for name, each in given.items() if isinstance(each, Optimizer)}
        self.others = {
            name: each for name, each in given.items() if name not in modules and name not in self.optimizers
        }
        for name, each in self.others.items():
            if isinstance(each, dict):
                continue
            if not callable(getattr(each, "state_dict", None)) or not callable(getattr(each, "load_state_dict", None)):
                raise InvalidRequest(
                    f"elastic({name}=…) got a {type(each).__name__}, which has no state_dict() and load_state_dict().",
                    hint="Give it both methods, so that its state reaches workers that join, or leave it out. Plain "
                    "variables, such as a best score, go into a dictionary.",
                    field=name,
                )
        if not modules:
            raise InvalidRequest("elastic() needs at least one model.", hint="For example elastic(model=net, opt=opt).")
        if not self.optimizers:
            raise InvalidRequest(
                "elastic() needs at least one optimizer.", hint="For example elastic(model=net, opt=opt)."
            )
        self.model = _together(modules)
        self.optimizer = SeveralOptimizers(list(self.optimizers.values()))
        # By their number and not their truth, which a module may define by its length.
        self.main = modules.get("model", next(iter(modules.values())) if len(modules) == 1 else self.model)
        _check_owners(self.model, self.optimizers)

    def states(self) -> dict[str, Any]:
        """Return the states of the other objects."""
        return {name: dict(each) if isinstance(each, dict) else each.state_dict() for name, each in self.others.items()}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Load what `states` returned in another worker, or at another time."""
        for name, each in self.others.items():
            if name not in states:
                continue
            if isinstance(each, dict):
                each.clear()
                each.update(states[name])
            else:
                each.load_state_dict(states[name])


def _together(modules: Mapping[str, nn.Module]) -> nn.ModuleDict:
    try:
        return nn.ModuleDict(modules)
    except KeyError as error:
        raise InvalidRequest(f"elastic() cannot call a model that: {error.args[0]}.") from None


def _check_owners(model: nn.Module, optimizers: Mapping[str, Optimizer]) -> None:
    known = {id(parameter) for parameter in model.parameters()}
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            if any(id(parameter) not in known for parameter in group["params"]):
                raise InvalidRequest(
                    f"The optimizer {name} holds parameters of a model that elastic() was not given.",
                    hint="Give all models to elastic(), each under a name of its own.",
                    field=name,
                )
