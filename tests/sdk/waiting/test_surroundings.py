"""Where code runs is told by what runs it, not by which modules are loaded."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["ipykernel", "IPython"])
def test_a_process_that_has_loaded_a_kernel_s_modules_is_none(module):
    code = (
        f"import sys, {module}; from edt_sdk.formatting.front_end import in_notebook;"
        "from edt_sdk.waiting.waiting import ProgressLine;"
        "assert not in_notebook(); assert ProgressLine()._stream is sys.stderr"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
