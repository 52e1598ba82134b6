"""Scripts that could only fail are refused; whatever might run is not."""

import pytest

from edt_sdk.packing.preflight import PYTHON, check_syntax, check_trains
from edt_sdk.packing.sources import SourceFile
from edt_sdk.schemas.errors import PackageError, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.registered import WmlaRequest

BROKEN = "x = (\n"


def files(sources):
    return [SourceFile(name, text.encode(), len(text)) for name, text in sources.items()]


def spec(main="train.py", **changes):
    return JobSpec(name="n", main=main, max_workers=1, **changes)


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ({"train.py": "a = 1\nif a\n    b = 2\n"}, "train.py, line 2 is not Python: expected ':': if a"),
        ({"train.py": "return 3\n"}, "train.py, line 1 is not Python: 'return' outside function: return 3"),
        ({"train.py": "import model\n", "model.py": BROKEN}, "model.py, line 1 is not Python"),
        (
            {"train.py": "from net import parts\n", "net/__init__.py": "", "net/parts.py": BROKEN},
            "net/parts.py, line 1",
        ),
        (
            {"train.py": "import net\n", "net/__init__.py": "from .inner import a\n", "net/inner/__init__.py": BROKEN},
            "net/inner/__init__.py, line 1",
        ),
    ],
)
def test_what_is_not_python(sources, says):
    with pytest.raises(PackageError) as refused:
        check_syntax(spec(), files(sources), PYTHON)
    assert says in str(refused.value)
    assert refused.value.ids["file"] in sources


@pytest.mark.parametrize(
    "sources",
    [
        {"train.py": "print(1)\n", "old.py": BROKEN},
        {"train.py": "try:\n    import old\nexcept Exception:\n    pass\n", "old.py": BROKEN},
        {"train.py": "def later():\n    import old\n", "old.py": BROKEN},
        {"train.py": "import missing\nimport torch.nn as nn\n"},
        {"train.py": '"\\d"\n'},
        {"train.py": "\ufeffprint('a mark of order in front')\n"},
    ],
)
def test_what_may_run(sources):
    check_syntax(spec(), files(sources), PYTHON)


def test_only_the_same_python_judges():
    check_syntax(spec(), files({"train.py": BROKEN}), "3.1")
    check_syntax(spec(), files({"train.py": BROKEN}), None)
    check_syntax(spec(wmla=WmlaRequest()), files({"train.py": BROKEN}), PYTHON)
    check_syntax(spec(main="", framework="PyTorch", command=("sh",)), files({"train.py": BROKEN}), PYTHON)


def test_a_script_in_the_top_folder_of_a_package():
    found = files({"top/train.py": "import model\n", "top/model.py": BROKEN})
    with pytest.raises(PackageError, match=r"model\.py, line 1"):
        check_syntax(spec(code_dir="top"), found, PYTHON)


@pytest.mark.parametrize(
    "sources",
    [
        {"train.py": "print(1)\n"},
        {"train.py": "import torch, model\nmodel.Net().train()\n", "model.py": "import numpy\nclass Net: ...\n"},
        {"train.py": "import torch\n", "edtcallback.py": "from fabric_model import FabricModel\n"},
    ],
)
def test_a_script_without_train(sources):
    with pytest.raises(Unprocessable, match=r'train\.py never calls FabricModel.*framework="PyTorch"') as refused:
        check_trains(spec(), files(sources))
    assert refused.value.ids == {"field": "framework"}
    assert "--framework PyTorch" in str(refused.value)
    check_trains(spec(framework="PyTorch"), files(sources))
    check_trains(spec(wmla=WmlaRequest()), files(sources))


BUILDS = "import torch\nfrom fabric_model import FabricModel\nfabric = FabricModel(torch.nn.Linear(1, 1), 0, 0, 0)\n"


def test_a_model_that_is_never_trained():
    with pytest.raises(Unprocessable, match=r"train\.py builds a FabricModel and never calls its train"):
        check_trains(spec(), files({"train.py": BUILDS}))


@pytest.mark.parametrize(
    "sources",
    [
        {"train.py": BUILDS + "fabric.train(1, 2)\n"},
        {"train.py": BUILDS + "getattr(fabric, 'tr' + 'ain')(1, 2)\n"},
        {"train.py": "import model\nmodel.fabric.train(1, 2)\n", "model.py": BUILDS},
        {"train.py": "import our_own_trainer\n" + BUILDS},
        {"train.py": "from fabric_model import FabricModel\n"},
        {"train.py": "import model\n", "model.py": "from edt_sdk import fabric\n"},
        {"train.py": "import importlib\nimportlib.import_module('a')\n"},
        {"train.py": "import our_own_trainer\n"},
        {"train.py": "import fast\n", "fast.so": ""},
    ],
)
def test_a_script_that_may_train(sources):
    check_trains(spec(), files(sources))
