"""The examples of docs/simulate.md run as they stand."""

import re

import pytest

FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def examples(root):
    return FENCE.findall((root / "docs/simulate.md").read_text(encoding="utf-8"))


def test_every_example_runs(examples, capsys):
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, "docs/simulate.md", "exec"), {"__name__": "example"})
    told = capsys.readouterr().out
    assert "60 s: heavy gets slot" in told
    assert told.count("fairshare") == 1


def test_every_option_and_policy_is_described(root):
    from edt_server.simulator.command import _parser
    from edt_server.simulator.policies import POLICIES

    page = (root / "docs/simulate.md").read_text(encoding="utf-8")
    options = [option for action in _parser()._actions for option in action.option_strings if option.startswith("--")]
    assert [option for option in options if option not in page and option != "--help"] == []
    assert [policy for policy in POLICIES if f"| `{policy}` |" not in page] == []
