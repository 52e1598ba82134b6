"""Explain an exception of the user's code beyond its own text: the layer it came from, or how to install a module.

All of it reads the traceback of an exception that was raised already, so a training that goes well pays nothing.
"""

from __future__ import annotations

import contextlib
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
# Frames between a call of a module and its forward pass. They are the same in each traceback.
_WRAPPERS = ("_call_impl", "_wrapped_call_impl")
_LONGEST = 100
_MOST_TENSORS = 3


def users(error: BaseException) -> BaseException:
    """Return the exception of the user's code: the cause, where ours only reports it."""
    if not isinstance(error, EdtError) or error.__cause__ is None:
        return error
    # In a driver the user's line is in the traceback of our error, which was raised in a call of the user's.
    frames = traceback.extract_tb(error.__traceback__)
    # Our context managers have a frame of contextlib between two of ours.
    ours = all(_is_ours(frame) or frame.filename == contextlib.__file__ for frame in frames)
    return error.__cause__ if ours else error


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(_OURS)


def traceback_text(error: BaseException) -> str:
    """Return the traceback of the user's exception, without the frames of our calls and of torch's wrappers."""
    shown = users(error)
    if not isinstance(shown, EdtError):
        whole = traceback.TracebackException.from_exception(shown)
        each: traceback.TracebackException | None = whole
        while each is not None:
            _shorten(each.stack)
            each = each.__cause__ or each.__context__
        return "".join(whole.format())
    frames = "".join(traceback.format_tb(shown.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{type(shown).__name__}: {shown}\n"


def _shorten(stack: traceback.StackSummary) -> None:
    # An exception that our own code raised is a fault of ours, and needs its frames.
    if stack and not _is_ours(stack[-1]):
        stack[:] = [frame for frame in stack if not _is_ours(frame) and frame.name not in _WRAPPERS] or stack[-1:]


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
    """Return where in `model` or the loss function the exception was raised, and what came in. "" outside of both.

    `called` is the place of the `train()` call, which is named when no frame is from a file below `code`.
    """
    try:
        error = users(error)
        loss = _loss_call(error)
        found = _innermost(error) if loss is None else None
        if loss is not None:
            function, got = loss
            part, where = "loss function", f"the loss function {getattr(function, '__name__', None) or repr(function)}"
            # A wrong type of labels is as frequent as a wrong shape.
            shapes = [f"{_shape(each)} ({str(each.dtype).removeprefix('torch.')})" for each in _tensors(got)]
        elif found is not None:
            module, got = found
            names = {id(each): name for name, each in model.named_modules()}
            place = {None: "", "": "the model itself, "}.get(
                names.get(id(module)), f"layer {_path(names.get(id(module)))}, "
            )
            part, where = "model", place + _shortened(module)
            shapes = [_shape(each) for each in _tensors(got)]
        else:
            return ""
        what = f", which got {' and '.join(shapes[:_MOST_TENSORS])}" if shapes else ""
        files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
        own = any(file.is_relative_to(code) for file in files)
        line = "" if own or not called else f" The {part} is the one of the train() call in {called}."
        return f"It was raised in {where}{what}.{line}"
    except Exception:  # a __repr__ of the user's may raise, and the error itself must be reported
        return ""


def _path(name: str | None) -> str:
    """Return a layer's name as it is written in Python: "model[2]" for the third of a Sequential."""
    return "model" + "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in (name or "").split("."))


def _loss_call(error: BaseException) -> tuple[Any, Any] | None:
    """Return the loss function and its arguments where the exception was raised in its call."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        values = frame.f_locals
        # See `ShardRunner._forward`: there are outputs before the call, and a loss after it.
        called = frame.f_code.co_name == "_forward" and "outputs" in values and "loss" not in values
        if called and Path(frame.f_code.co_filename).is_relative_to(_OURS):
            return values["self"]._loss_function, (values["outputs"], values["labels"])
    return None


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
