"""Run a program as the main script of a job, or alone: `FOLDER NAME`. `--lines` counts the lines changed in each."""

import sys
from pathlib import Path

from tests.training.elastic import programs
from tests.training.elastic.programs.lines import table

if __name__ == "__main__":
    if sys.argv[1:] == ["--lines"]:
        print(table(programs.PROGRAMS))
    else:
        programs.run(Path(sys.argv[1]), sys.argv[2])
