"""With `EDT_TEST_DEADLINE` set, no test begins behind it, and what is left out is named."""

import os
import subprocess
import sys
import time


def run(folder, deadline):
    words = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "tests.deadline", "--rootdir", folder]
    environ = os.environ | {"EDT_TEST_DEADLINE": str(deadline)}
    return subprocess.run([*words, folder], env=environ, capture_output=True, text=True, check=False)


def test_what_comes_last_is_left_out_and_named(tmp_path):
    for name in ("browser", "server"):
        (tmp_path / name).mkdir()
    (tmp_path / "server/test_parts.py").write_text(
        "import os\ndef test_one():\n    os.environ['EDT_TEST_DEADLINE'] = '0'\n"  # the time is over with this test
    )
    (tmp_path / "browser/test_page.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    done = run(tmp_path, time.time() + 3600)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 2 skipped" in done.stdout
    assert "    2  browser/test_page.py" in done.stdout.splitlines()


def test_where_there_is_time_all_run(tmp_path):
    (tmp_path / "test_parts.py").write_text("def test_one(): pass\n")
    done = run(tmp_path, time.time() + 3600)
    assert "1 passed" in done.stdout
    assert "did not run" not in done.stdout
