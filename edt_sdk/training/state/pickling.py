"""Pickle what torch leaves out of an optimizer's pickle, and name what no pickle can take along.

torch pickles three attributes of an optimizer: defaults, state and parameter groups. An optimizer of the user's own may
have more, such as two optimizers inside (Muon and AdamW), or the slow weights of a lookahead. All attributes travel
here, unless the class defines what travels by a `__getstate__` of its own. Hooks on parameters and on an optimizer's
step are in no pickle of torch's, so a training that has them is refused (`check_hooks`).
"""

from __future__ import annotations

import copyreg
import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.errors import Unprocessable

_THREE = ("defaults", "param_groups", "state")
_STEP_HOOKS = {
    "_optimizer_step_pre_hooks": "register_step_pre_hook",
    "_optimizer_step_post_hooks": "register_step_post_hook",
}
_PARAMETER_HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
# What belongs to the process: hooks, and the wrapper that a learning-rate scheduler puts around `step`.
_STAYS = frozenset(
    {
        *_THREE,
        *_STEP_HOOKS,
        "_optimizer_state_dict_pre_hooks",
        "_optimizer_state_dict_post_hooks",
        "_optimizer_load_state_dict_pre_hooks",
        "_optimizer_load_state_dict_post_hooks",
        "step",
    }
)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles like cloudpickle, optimizers with all their attributes, and code with the name of its file."""

    # From 3.1.3 on cloudpickle calls every file "<dynamic-code>", and an error in the user's code would have no place.
    dispatch_table = ChainMap({CodeType: lambda code: _reduce_code(code)}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild an optimizer. A class that says itself how it is pickled is asked instead."""
        if isinstance(obj, Optimizer) and _pickled_by_torch(type(obj)):
            content = attributes(obj) | {name: getattr(obj, name) for name in _THREE}
            return copyreg.__newobj__, (type(obj),), content  # type: ignore[attr-defined]
        return super().reducer_override(obj)


def dumps(value: object) -> bytes:
    """Return the pickle of a value."""
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Return what belongs to an optimizer besides defaults, state and parameter groups.

    Raises:
        Unprocessable: the class has a `__getstate__` that returns no dictionary.
    """
    content: Any = vars(optimizer)
    if type(optimizer).__getstate__ is not Optimizer.__getstate__:
        content = optimizer.__getstate__()
        if not isinstance(content, dict):
            raise Unprocessable(
                f"{type(optimizer).__name__}.__getstate__ must return a dictionary, not a {type(content).__name__}.",
                hint="What it returns travels to other workers and into checkpoints, attribute by attribute.",
                field="optimizer",
            )
    return {name: value for name, value in content.items() if name not in _STAYS}


def all_optimizers(optimizer: Optimizer) -> list[Optimizer]:
    """Return an optimizer and those among its attributes, alone or in a list, a tuple or a dictionary."""
    found = [optimizer]
    for each in found:  # grows on the way
        for value in attributes(each).values():
            several = value.values() if isinstance(value, dict) else value
            for part in several if isinstance(value, (dict, list, tuple)) else (value,):
                if isinstance(part, Optimizer) and all(part is not known for known in found):
                    found.append(part)
    return found


def hooks(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the hooks that no pickle takes along, as the user registered them."""
    found = []
    for each in all_optimizers(optimizer):
        for table, verb in _STEP_HOOKS.items():
            found += [f"optimizer.{verb}({_name(hook)})" for hook in getattr(each, table).values()]
        own_step = vars(each).get("step")
        if own_step is not None and not hasattr(own_step, "_wrapped_by_lr_sched"):
            found.append(f"optimizer.step = {_name(own_step)}")
    for name, parameter in model.named_parameters():
        for table, verb in _PARAMETER_HOOKS.items():
            found += [f"model.{name}.{verb}({_name(hook)})" for hook in (getattr(parameter, table) or {}).values()]
    return found


def check_hooks(before: list[str], after: list[str]) -> None:
    """Check that a copy, with the hooks `after`, has the hooks that the original had.

    Raises:
        Unprocessable: some are missing. Without this check the workers would train without them, silently.
    """
    lost = [hook for hook in before if hook not in after]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        of_model = lost[0].startswith("model.")
        raise Unprocessable(
            f"{lost[0]}{more} cannot be sent to the workers: their copies would train without it.",
            hint="Register it in a __setstate__ of the model's class, which runs in every worker. A limit of the "
            "gradient is clip_grad_norm=."
            if of_model
            else "Put it into step() of an optimizer class of your own: what it keeps in attributes travels. Or into a "
            "user_callback.",
            field="model" if of_model else "optimizer",
        )


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _of_file, (code.co_filename, make, *arguments)


def _of_file(name: str, make: Callable[..., CodeType], *arguments: Any) -> CodeType:
    return make(*arguments).replace(co_filename=name)


def _pickled_by_torch(kind: type[Optimizer]) -> bool:
    return (
        kind.__getstate__ is Optimizer.__getstate__
        and kind.__reduce__ is object.__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
