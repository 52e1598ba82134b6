"""The part of a WMLA submission that only WMLA's clients read again."""

from __future__ import annotations

import msgspec


class WmlaRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The WMLA part of a job: kept and shown to WMLA's clients, without a meaning for the job itself.

    Attributes:
        args: the `args` of the request, decoded, as they came.
        app_name: `--appName`, "" for the framework's own.
        sig_name: the instance group as the request named it, "" when it named none.
        consumer: the resource plan's path, "" for none.
        remarks: what was requested without a meaning here, one sentence each, for the job's story.
    """

    args: str = ""
    app_name: str = ""
    sig_name: str = ""
    consumer: str = ""
    remarks: tuple[str, ...] = ()
