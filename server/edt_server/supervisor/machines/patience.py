"""How long a process may take to end by itself, whichever state machine ends it."""

from __future__ import annotations

from typing import Final

# Seconds. A process that ends closes its link a moment before: in that time its own exit code is still to come.
EXIT_PATIENCE: Final = 1.0
# Seconds for one that has said why it failed, and has only its traceback still to write.
FAILED_PATIENCE: Final = 5.0
