"""Run `python -m edt_server.supervisor <launch.json>`."""

from __future__ import annotations

import sys

from edt_server.supervisor.starting import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
