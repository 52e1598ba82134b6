"""Explain an exception of the user's code beyond its own text: the layer it came from, or how to install a module.

All of it reads the traceback of an exception that was raised already, so a training that goes well pays nothing.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edt_sdk.schemas.errors import EdtError

if TYPE_CHECKING:
    from torch import nn

# What pip calls a module, where the names differ.
_PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_OURS = Path(__file__).parents[2]
_LONGEST = 100
_MOST_TENSORS = 3


def users(error: BaseException) -> BaseException:
    """Return the exception of the user's code: the cause, where ours only reports it."""
    if not isinstance(error, EdtError) or error.__cause__ is None:
        return error
    # In a driver the user's line is in the traceback of our error, which was raised in a call of the user's.
    frames = traceback.extract_tb(error.__traceback__)
    return error.__cause__ if all(Path(frame.filename).is_relative_to(_OURS) for frame in frames) else error


def traceback_text(error: BaseException) -> str:
    """Return the traceback of the user's exception, without ours around it."""
    shown = users(error)
    if not isinstance(shown, EdtError):
        return "".join(traceback.format_exception(shown))
    frames = "".join(traceback.format_tb(shown.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{type(shown).__name__}: {shown}\n"


def sentence(text: str, *more: str) -> str:
    """Return the text, followed by the sentences that are not empty."""
    added = [each for each in more if each]
    end = "." if added and not text.endswith((".", "!", "?")) else ""
    return " ".join([f"{text}{end}", *added])


def missing_module(error: BaseException) -> str:
    """Return which Python has no such module, and the line that installs it. "" for any other exception."""
    if isinstance(error, EdtError):
        error = error.__cause__ or error
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    # A part of an installed library is missing: installing it again would not help.
    if not name or name in sys.modules or importlib.util.find_spec(name) is not None:
        return ""
    install = f"{sys.executable} -m pip install {_PACKAGES.get(name, name)}"
    return f"The job runs in {sys.executable}. Install it there: {install} — or submit its folder if it is your own."


def layer(error: BaseException, model: nn.Module, called: str, code: Path) -> str:
    """Return in which layer of `model` the exception was raised, and the shape of its input. "" outside of layers.

    `called` is the place of the `train()` call, which is named when no frame is from a file below `code`.
    """
    try:
        error = users(error)
        found = _innermost(error)
        if found is None:
            return ""
        module, got = found
        names = {id(each): name for name, each in model.named_modules()}
        place = {None: "", "": "the model itself, "}.get(
            names.get(id(module)), f"layer {_path(names.get(id(module)))}, "
        )
        shapes = [_shape(each) for each in _tensors(got)][:_MOST_TENSORS]
        what = f", which got {' and '.join(shapes)}" if shapes else ""
        files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
        own = any(file.is_relative_to(code) for file in files)
        line = "" if own or not called else f" The model is the one of the train() call in {called}."
        return f"It was raised in {place}{_shortened(module)}{what}.{line}"
    except Exception:  # a __repr__ of the user's may raise, and the error itself must be reported
        return ""


def _path(name: str | None) -> str:
    """Return a layer's name as it is written in Python: "model[2]" for the third of a Sequential."""
    return "model" + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in (name or "").split("."))


def _innermost(error: BaseException) -> tuple[nn.Module, Any] | None:
    """Return the module with the innermost call of its forward pass, and the arguments of that call."""
    from torch import nn

    module: nn.Module | None = None
    got: Any = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, values = frame.f_code, frame.f_locals
        found = values.get("self")
        if not isinstance(found, nn.Module) or code.co_name not in ("forward", "_call_impl"):
            continue
        if code.co_name == "_call_impl":
            module, got = found, (values.get("args"), values.get("kwargs"))
        elif found is not module:  # called as `layer.forward(x)`
            module, got = found, [values.get(name) for name in code.co_varnames[1 : code.co_argcount]]
    return None if module is None else (module, got)


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "shape"):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _shape(tensor: Any) -> str:
    return f"a tensor of {'×'.join(map(str, tensor.shape))}" if len(tensor.shape) else "a tensor of one number"


def _shortened(module: nn.Module) -> str:
    if any(True for _ in module.children()):
        return type(module).__name__
    text = " ".join(repr(module).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
