"""What a cell takes along from its notebook, and what it says of what it cannot."""

import math
import pathlib
import sys

import pytest

from edt_sdk.packing.cell_needs import take_along
from edt_sdk.schemas.errors import PackageError


def taken(cell, *earlier, before=None):
    """Run the cells as a notebook does, ask, and run the script with the cell in a fresh namespace; what that binds."""
    space = {"__name__": "__main__", **(before or {})}
    for each in earlier:
        exec(compile(each, "<cell>", "exec"), space)
    found = take_along(cell, earlier, space)
    fresh = {"__name__": "__main__"}
    exec(compile(f"{found.script}\n{cell}", "<job>", "exec"), fresh)
    return found, fresh


def test_what_it_does_not_use_stays():
    found, _ = taken("x = 1\nprint(x)", "def f(): pass", "y = 2")
    assert (found.script, found.notes) == ("", ())


def test_functions_classes_and_imports_with_what_they_need():
    found, job = taken(
        "result = main(3)",
        "import math\nimport json as unused\nfrom math import floor as down",
        "class Base:\n    def size(self): return 2",
        "@staticmethod\ndef never(): pass",
        "class Net(Base):\n    scale = math.pi\n    def area(self, r): return down(self.scale * r ** self.size())",
        "def main(r):\n    # a comment\n    return Net().area(r)",
    )
    assert job["result"] == 28
    assert found.notes == (
        "taken along from this notebook: Base and Net (classes); main (function); down and math (imports)",
    )
    assert "# a comment" in found.script
    assert "unused" not in found.script
    assert "never" not in found.script


def test_the_last_definition_counts_and_its_order():
    found, job = taken(
        "out = f()", "def f(): return 1", "def g(): return 2", "def f(): return g() + 1", "def g(): return 5"
    )
    assert job["out"] == 6
    assert found.script.count("def f") == 1


def test_values_are_those_of_now():
    found, job = taken(
        "out = (RATE, NAMES, WHERE, half(4))",
        "RATE = 0.1\nNAMES = ['a']\nWHERE = pathlib.Path('/data')\nhalf = lambda n: n * RATE",
        "RATE = RATE * 5\nNAMES.append('b')",
        before={"pathlib": pathlib},
    )
    assert job["out"] == (0.5, ["a", "b"], pathlib.Path("/data"), 2.0)
    assert "RATE = 0.5" in found.notes[0]


def test_a_name_that_the_cell_reads_before_it_writes_it():
    _, job = taken("RATE = RATE * 2\ncount += 1", "RATE = 3\ncount = 0")
    assert (job["RATE"], job["count"]) == (6, 1)
    found, _ = taken("for i in range(2):\n    i2 = i\nprint(i2)\n[k for k in range(3)]", "i = i2 = k = object()")
    assert found.script == ""


def test_guarded_imports_and_names_from_stars():
    found, job = taken(
        "out = (np is None, sqrt(4.0))",
        "try:\n    import no_such_module as np\nexcept ImportError:\n    np = None",
        "from math import *",
    )
    assert job["out"] == (True, 2.0)
    assert "from math import sqrt as sqrt" in found.script


def test_functions_that_call_each_other_and_closures():
    _, job = taken(
        "out = even(10), make()()",
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)",
        "SEED = 7\ndef make():\n    def inner():\n        return SEED\n    return inner",
    )
    assert job["out"] == (True, 7)


def test_two_statements_on_one_line():
    found, job = taken("out = f()", "x = 1; f = lambda: 4; y = object()")
    assert job["out"] == 4
    assert "object" not in found.script


def test_magics_in_earlier_cells_and_cells_that_failed():
    space = {"f": lambda: 1, "math": math}
    earlier = [
        "%matplotlib inline\nimport math",
        "def broken(:",
        "!ls\ndef f(): return math.pi",
        "%%edt_submit\ndef f(): 1 / 0",
    ]
    found = take_along("print(f())", earlier, space)
    assert "return math.pi" in found.script
    assert "1 / 0" not in found.script


@pytest.mark.parametrize(
    ("cell", "earlier", "says"),
    [
        ("print(frame)", "frame = object()", "frame is an object"),
        ("def f():\n    return table", "table = {'a': object()}", "table is a dict"),
        ("print(many)", "many = list(range(100_000))", "many is a list of 688890 characters"),
        ("use(a, b)", "class C: pass\na, b = C(), C()\ndef use(*_): pass", "a is a C and b is a C"),
        ("f()", "model = object()\ndef f(): return model", "model is an object"),
        ("display(1)", "", "display, which only a notebook has"),
    ],
)
def test_what_cannot_travel_is_named(cell, earlier, says):
    with pytest.raises(PackageError, match=says) as wrong:
        taken(cell, earlier)
    assert wrong.value.ids == {"field": "source"}
    assert wrong.value.hint


def test_what_nothing_defines_is_said_and_left_to_the_job():
    found = take_along("print(nowhere, len, __name__)", [], {})
    assert found.notes == ("nothing in this notebook defines nowhere, which the cell uses",)
    assert take_along("from math import *\nsqrt(1)", [], {}).notes == ()


def test_modules_travel_by_name():
    found = take_along("print(s.path, m.pi)", [], {"s": sys, "m": math})
    assert found.script == "import math as m\nimport sys as s"
