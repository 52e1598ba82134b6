"""What a script reads of the trial that it runs as. It needs the standard library only."""

from __future__ import annotations

import json
import os
from typing import Any


def params() -> dict[str, Any]:
    """Return the values of this trial by name, such as {"lr": 0.01}. It is empty outside a search.

    So `params().get("lr", 0.1)` gives a script a value of its own where it runs alone.
    """
    return dict(json.loads(os.environ.get("EDT_PARAMS") or "{}"))
