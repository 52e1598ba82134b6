"""Refuse a script that could only fail, before a job exists: text that is not Python, or no call of `train()`.

Code is parsed and never run. What is not certain is not refused: the job itself then shows it.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from edt_sdk.packing.sources import HELPERS, SourceFile, imported
from edt_sdk.schemas.errors import PackageError, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec

# A longer script is generated. The parser takes two hundred times its size in memory.
_LONGEST = 1 << 18
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# A package with one of these may train, or may run code that its imports do not show.
_MAY_TRAIN = re.compile(rb"FabricModel|fabric_model|edt_sdk|pyedt|importlib|runpy|__import__|\bexec\(")
# A model is built here, and nothing in the package looks like the call of its train().
_BUILDS = re.compile(rb"\bFabricModel\s*\(")
_CALLS = re.compile(rb"\.train\b|\btrain\s*\(|[\"']train[\"']")
_INDIRECT = re.compile(rb"pyedt|importlib|runpy|__import__|\bexec\(|getattr")
_OPAQUE = (".so", ".pyd", ".pyc", ".zip", ".egg", ".whl")
# Libraries that never call FabricModel. Any other installed library may.
_LIBRARIES = frozenset({
    "PIL", "accelerate", "albumentations", "cv2", "datasets", "einops", "h5py", "jax", "keras", "lightning",
    "matplotlib", "mlflow", "numpy", "onnx", "pandas", "pytorch_lightning", "requests", "scipy", "seaborn", "skimage",
    "sklearn", "tensorboard", "tensorflow", "timm", "torch", "torchaudio", "torchtext", "torchvision", "tqdm",
    "transformers", "wandb", "yaml",
})  # fmt: skip
# `catch_warnings` replaces a list that all threads share.
_QUIET = threading.Lock()


def check_syntax(spec: JobSpec, files: Iterable[SourceFile], python: str | None) -> None:
    """Raise PackageError when the main script, or a module that it imports at its top level, is not Python.

    `python` is the "major.minor" of the job's Python, None where it is not known. Only that version can judge.
    """
    found = _scripts(spec, files)
    if not found or python != PYTHON or not spec.main.endswith(".py"):
        return
    seen = {spec.main}
    waiting = [spec.main]
    while waiting:
        name = waiting.pop()
        data = _read(found[name])
        if len(data) > _LONGEST:
            continue
        for module in _modules(_parsed(name, data), name, spec.main):
            if module in found and module not in seen:
                seen.add(module)
                waiting.append(module)


def check_trains(spec: JobSpec, files: Iterable[SourceFile]) -> None:
    """Raise Unprocessable for a package of the elastic engine that certainly never calls `FabricModel.train()`."""
    files = tuple(files)
    scripts = {name: each for name, each in _scripts(spec, files).items() if name not in HELPERS}
    if spec.framework != Framework.EDT or not scripts or any(each.name.endswith(_OPAQUE) for each in files):
        return
    own = {part.removesuffix(".py") for name in scripts for part in PurePosixPath(name).parts}
    texts = [_read(file) for file in scripts.values()]
    builds = any(map(_BUILDS.search, texts))
    may_train = re.compile(rb"%b|%b" % (_CALLS.pattern, _INDIRECT.pattern)) if builds else _MAY_TRAIN
    known = own | _LIBRARIES | ({"edt_sdk", "fabric_model"} if builds else set())
    for data in texts:
        if may_train.search(data) or len(data) > _LONGEST:
            return
        if imported(data.decode("utf-8", "replace")) - known - sys.stdlib_module_names:
            return
    if builds:
        raise Unprocessable(
            f"{spec.main} builds a FabricModel and never calls its train(...).",
            hint="End the script with fabric.train(epochs, batch_size, shards).",
            field="source",
        )
    raise Unprocessable(
        f"{spec.main} never calls FabricModel(...).train(...), which the framework edtPyTorch runs.",
        hint='To run the script as it is: framework="PyTorch" (in a shell: --framework PyTorch). To make its own loop '
        "elastic: import edt_sdk.elastic, see docs/guide/your-loop.md.",
        field="framework",
    )


def _scripts(spec: JobSpec, files: Iterable[SourceFile]) -> Mapping[str, SourceFile]:
    """Return the Python files by their names in the code folder, none where no script of the package is run."""
    started = spec.torchrun
    # Clients of WMLA expect a job that fails.
    wmla = spec.wmla is not None or (spec.registered is not None and spec.registered.console)
    if wmla or spec.command or (started is not None and (started.module or started.no_python)):
        return {}
    top = f"{spec.code_dir}/" if spec.code_dir else ""
    found = {file.name.removeprefix(top): file for file in files if file.name.endswith(".py")}
    return found if spec.main in found else {}


def _read(file: SourceFile) -> bytes:
    if isinstance(file.content, bytes):
        return file.content
    try:
        with Path(file.content).open("rb") as opened:
            return opened.read(_LONGEST + 1)
    except OSError:
        return b""  # packing reports it


def _parsed(name: str, data: bytes) -> ast.Module:
    try:
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data, name)
            # The parser accepts a `return` outside of a function, the compiler does not.
            compile(tree, name, "exec", dont_inherit=True)
    except SyntaxError as wrong:
        lines = data.decode("utf-8", "replace").splitlines()
        line = lines[wrong.lineno - 1].strip() if wrong.lineno and wrong.lineno <= len(lines) else ""
        raise PackageError(
            f"{name}, line {wrong.lineno or 1} is not Python: {wrong.msg}: {line}".rstrip(": "),
            field="source",
            file=name,
            line=wrong.lineno or 1,
        ) from None
    except (ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # not a verdict on the code
    return tree


def _modules(tree: ast.Module, name: str, main: str) -> Iterator[str]:
    """Yield the names that files of the modules may have which are imported outside of functions and blocks.

    An import in a function may never run, and one in a `try` may fail.
    """
    for node in tree.body:
        if isinstance(node, ast.Import):
            level, dotted = 0, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            level, module = node.level, f"{node.module}." if node.module else ""
            dotted = [f"{module}{alias.name}" for alias in node.names]
        else:
            continue
        here = PurePosixPath(name)
        # A script finds modules next to it, and in the code folder.
        bases = (
            [here.parents[min(level, len(here.parents)) - 1]]
            if level
            else [PurePosixPath(main).parent, here.parents[-1]]
        )
        for base in bases:
            for each in dotted:
                parts = each.split(".")
                for end in range(1, len(parts) + 1):
                    path = base.joinpath(*parts[:end])
                    yield f"{path}.py"
                    yield f"{path / '__init__.py'}"
