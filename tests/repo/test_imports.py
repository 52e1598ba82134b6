"""Who may import whom: edt_jupyter → edt_server → what edt_sdk shares, and edt_sdk neither of the others."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGES = {
    "edt_sdk": Path("edt_sdk"),
    "edt_server": Path("server/edt_server"),
    "edt_jupyter": Path("jupyter_ext/edt_jupyter"),
}
OURS = tuple(PACKAGES)
# What the server may use of the SDK: pure, light, and the same on both sides.
SHARED = ("edt_sdk.schemas", "edt_sdk.pictures", "edt_sdk.packing", "edt_sdk.torchrun.command_line.options")
ALLOWED = {
    "edt_sdk": ("edt_sdk",),
    "edt_server": ("edt_server", *SHARED),
    "edt_jupyter": ("edt_jupyter", "edt_server", *SHARED),
}


def imported(source, package):
    """Absolute names of all modules that `source` imports, wherever in it; `package` resolves relative imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            # `from edt_sdk import schemas` imports edt_sdk.schemas or a name of edt_sdk: both count as what they spell.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def below(name, roots):
    return any(name == root or name.startswith(root + ".") for root in roots)


def violations(root):
    for name, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to((root / folder).parent).with_suffix("").parts
            package = ".".join(parts[:-1])
            for module in imported(path.read_text(encoding="utf-8"), package):
                if below(module, OURS) and not below(module, ALLOWED[name]):
                    yield f"{path.relative_to(root)} imports {module}"


def test_imports_go_one_way(root):
    assert list(violations(root)) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import edt_server.store as s", ["edt_server.store"]),
        ("def f():\n  from edt_sdk import schemas", ["edt_sdk.schemas"]),
        ("from ..schemas import job", ["edt_sdk.schemas.job"]),
        ("from . import x", ["edt_sdk.training.x"]),
    ],
)
def test_the_reader_sees_every_form_of_import(source, names):
    assert list(imported(source, "edt_sdk.training")) == names


def test_the_schemas_stand_on_nothing_of_ours(root):
    for path in (root / "edt_sdk/schemas").glob("*.py"):
        for module in imported(path.read_text(encoding="utf-8"), "edt_sdk.schemas"):
            assert not below(module, OURS) or below(module, ("edt_sdk.schemas",)), f"{path.name} imports {module}"
            assert not below(module, ("torch", "numpy")), f"{path.name} imports {module}"


def test_pictures_stand_on_the_standard_library(root):
    for path in (root / "edt_sdk/pictures").glob("*.py"):
        for module in imported(path.read_text(encoding="utf-8"), "edt_sdk.pictures"):
            own = below(module, ("edt_sdk.pictures",))
            assert own or module.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {module}"


# torch only in a function that exports a model: tests/compat looks at that.
_JOB_MODULES = {"emetrics": (), "elog": (), "edtcallback": ("callbacks", "elog", "emetrics", "torch")}


def test_jobs_side_modules_stand_alone(root):
    """emetrics, elog and edtcallback are packed into submissions: of ours they may need `callbacks` alone."""
    for name, allowed in _JOB_MODULES.items():
        source = (root / f"edt_sdk/compat/job/{name}.py").read_text(encoding="utf-8")
        modules = {module.split(".")[0] for module in imported(source, "")}
        assert modules - set(sys.stdlib_module_names) == set(allowed)
