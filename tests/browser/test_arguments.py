"""Arguments in the train form are taken apart as a shell does: compared with Python's own, in the Node of the wheel."""

import shlex

from tests.browser.front_end import evaluate

MODULE = "train/words.ts"
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


def test_as_a_shell_does():
    assert evaluate(MODULE, "of.words(it)", [*LINES]) == [shlex.split(line) for line in LINES]


def test_a_quote_that_is_not_closed():
    assert evaluate(MODULE, "of.words(it)", [*UNCLOSED]) == ["UnclosedQuote"] * len(UNCLOSED)


def test_and_back():
    lists = [shlex.split(line) for line in LINES] + [["it's", "", "a b", "--x=1"]]
    assert evaluate(MODULE, "of.words(of.line(it))", [*lists]) == lists
