"""`python -m edt_sdk.cli`, the same as `edt`."""

import sys

from edt_sdk.cli import main

sys.exit(main())
