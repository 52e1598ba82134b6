"""Run `python -m edt_server.simulator`, as `edt simulate` does."""

import sys

from edt_server.simulator.command import main

if __name__ == "__main__":
    sys.exit(main())
