"""Operators without a deterministic kernel are named once in mode `exact`; `fast` is silent."""

import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys, torch, warnings
from edt_sdk.training.update import determinism
logging.basicConfig(format="%(message)s", level=logging.WARNING)
determinism.configure(sys.argv[1])
warnings.simplefilter("always")
for _ in range(2):
    for operator in ("some_kernel_cuda", "another"):
        warnings.warn(operator + " does not have a deterministic implementation, but you set "
                      "'torch.use_deterministic_algorithms(True, warn_only=True)'.")
warnings.warn("something else")
print(torch.are_deterministic_algorithms_enabled())
"""


@pytest.mark.parametrize(("mode", "lines"), [("exact", 2), ("fast", 0)])
def test_each_operator_is_named_once(mode, lines):
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
    said = [line for line in done.stderr.splitlines() if "has no deterministic implementation" in line]
    assert [line.split()[0] for line in said] == ["some_kernel_cuda", "another"][:lines]
    assert "something else" in done.stderr
    assert done.stdout.strip() == str(mode == "exact")
