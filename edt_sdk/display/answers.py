"""Present the answer of `what_if`: the slots each job would hold, and when the job would end."""

from __future__ import annotations

import time
from datetime import datetime

from edt_sdk.formatting.tables import text_table
from edt_sdk.schemas.forecast import WhatIf

_NEAR = 120.0  # seconds


class WhatIfAnswer(WhatIf, frozen=True, kw_only=True):
    """Holds a `WhatIf` with a repr of a small table and a sentence. See there for its fields."""

    def __repr__(self) -> str:
        rows = [(each.job, each.name, each.now, each.then) for each in self.shares]
        shown = text_table(("JOB", "NAME", "NOW", "THEN"), rows)
        why = self.reason.text if self.reason else ""
        if self.shares and all(each.now == each.then for each in self.shares):
            why = "No slot would change its job now: " + (why or "this one has all it can use.")
        return "\n".join(filter(None, (shown, self._ends(), why)))

    def _ends(self) -> str:
        if self.ends_now is None and self.ends_then is None:
            return "When it would end is not known yet."
        if self.ends_then is None:
            return f"As things are, its training ends {_when(self.ends_now)}; when it would end then is not known."
        if self.ends_now is None:
            return f"Its training would end {_when(self.ends_then)}; when it ends as things are is not known."
        return f"Its training would end {_when(self.ends_then)}; as things are, {_when(self.ends_now)}."


def _when(seconds: float | None) -> str:
    if seconds is None:
        return ""
    # A computed time that is far away is not exact to the second.
    if seconds - time.time() < _NEAR:
        return f"about {datetime.fromtimestamp(seconds):%a %H:%M:%S}"
    return f"about {datetime.fromtimestamp(60 * round(seconds / 60)):%a %H:%M}"
