"""What a submission of WMLA's clients said that only they want to see again."""

from __future__ import annotations

import msgspec


class WmlaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Kept with the job, shown by the WMLA adapter, without a meaning for the job itself.

    Attributes:
        args: the `args` of the request, decoded, as they came.
        app_name: `--appName`, "" for the framework's own.
        sig_name: the instance group as the request named it, "" when it named none.
        consumer: the resource plan's path, "" for none.
        remarks: what was asked for and has no meaning here, a sentence each; they are in the job's story.
    """

    args: str = ""
    app_name: str = ""
    sig_name: str = ""
    consumer: str = ""
    remarks: tuple[str, ...] = ()
