"""`python -m edt_server.simulator`: what `edt simulate` runs."""

import sys

from edt_server.simulator.command import main

if __name__ == "__main__":
    sys.exit(main())
