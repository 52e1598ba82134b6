"""Start this program from nothing where a zygote of version 0.1 has forked it.

Import this module before every other one of `edt_sdk`. A zygote that was started before an upgrade has imported version
0.1, and forks processes that run the program file it finds on disk, which is of this version. The modules in memory are
not: `edt_sdk.training.exchange`, for one, was a module and is a package now. The replaced process keeps its pid, its
descriptors and its variables. From this version on a zygote notices the upgrade itself (`zygote.run`). Remove this
module with `state/previous_version.py`.
"""

import os
import sys

if "edt_sdk.schemas.context" in sys.modules:
    os.execv(sys.executable, sys.orig_argv)
