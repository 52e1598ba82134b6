"""Define the one tree of errors that users meet, on either side of the wire.

EdtError
├── InvalidRequest        400  the request itself is malformed
│   └── PackageError      400  the package (archive) cannot be accepted
├── NotAllowed            403  another user's job, or the authorizer refused
├── NotFound              404  no such job, log, checkpoint or route
├── Conflict              409  the job is in a state that does not allow this
├── ChangedMeanwhile      412  it was changed since it was read
├── TooLarge              413  the package is over the size cap
├── Unprocessable         422  well-formed, but can never be done here
│   └── NotBuiltYet       422  named in the documentation, not in this release
├── JobFailed             —    `Job.wait()`: the job ended FAILED, KILLED or ERROR
├── WaitTimeout           —    `Job.wait(timeout)`: the job goes on, waiting does not
├── ServerUnreachable     503  no server, or it does not answer
└── StorageFailed         507  the server's disk is full, or cannot be written

The server raises them, the HTTP layer writes them as JSON `{"message", "code", "hint", …}` with their status, and the
SDK raises the same class again from that JSON. The message is what is wrong. The hint is what to do next.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EdtError(Exception):
    """Base of all errors of jupyter-edt.

    Args:
        message: what is wrong, one sentence.
        hint: what to do next, one sentence. Empty when the message is enough.
        **ids: the things involved (`job="…"`, `field="…"`), written into the JSON beside message and hint.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "edt_error"

    def __init__(self, message: str, *, hint: str = "", **ids: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.ids = ids

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def _render_traceback_(self) -> list[str]:
        """Return the text IPython shows in a cell: message and hint. Frames of our code would not show the mistake."""
        return [f"{type(self).__name__}: {self}"]

    def to_json(self) -> dict[str, Any]:
        """The body the server sends."""
        return {"message": self.message, "code": self.code, "hint": self.hint, **self.ids}


class InvalidRequest(EdtError):
    """The request is malformed. A retry of the same request fails again."""

    status, code = 400, "invalid_request"


class PackageError(InvalidRequest):
    """The package cannot be unpacked safely, or misses what the job needs."""

    code = "bad_package"


class NotAllowed(EdtError):
    """The caller may not do this with this job."""

    status, code = 403, "not_allowed"


class NotFound(EdtError):
    """What was asked for does not exist."""

    status, code = 404, "not_found"


class Conflict(EdtError):
    """The job's state does not allow this."""

    status, code = 409, "conflict"


class ChangedMeanwhile(EdtError):
    """The version that the change is based on is no longer current: read it again."""

    status, code = 412, "changed_meanwhile"


class TooLarge(EdtError):
    """The package is larger than the server accepts."""

    status, code = 413, "too_large"


class Unprocessable(EdtError):
    """Understood, but it can never be done here."""

    status, code = 422, "unprocessable"


class NotBuiltYet(Unprocessable):
    """Documented for a later release."""

    code = "not_built_yet"


class JobFailed(EdtError):
    """The awaited job did not finish. `state` is the final state."""

    code = "job_failed"


class WaitTimeout(EdtError):
    """Waiting ended, the job did not."""

    code = "wait_timeout"


class ServerUnreachable(EdtError):
    """No jupyter-edt server could be found, or it does not answer."""

    status, code = 503, "server_unreachable"


class StorageFailed(EdtError):
    """The server could not write what was sent."""

    status, code = 507, "storage_failed"


BY_CODE: dict[str, type[EdtError]] = {
    cls.code: cls
    for cls in (
        EdtError, InvalidRequest, PackageError, NotAllowed, NotFound, Conflict, ChangedMeanwhile, TooLarge,
        Unprocessable, NotBuiltYet,
        JobFailed, WaitTimeout, ServerUnreachable, StorageFailed,
    )
}  # fmt: skip


def from_json(body: dict[str, Any], status: int) -> EdtError:
    """Return the error that a server's JSON body describes.

    Bodies that are not ours (a proxy's, Jupyter's own) become the class of their status, with their text as message.
    """
    ids = dict(body)
    message = str(ids.pop("message", "") or f"The server answered {status}.")
    hint = str(ids.pop("hint", "") or "")
    code = str(ids.pop("code", ""))
    # Jupyter Server puts these two into its own error bodies.
    ids.pop("reason", None)
    ids.pop("traceback", None)
    cls = BY_CODE.get(code)
    if cls is None:
        by_status: dict[int, type[EdtError]] = {
            each.status: each
            for each in (InvalidRequest, NotAllowed, NotFound, Conflict, ChangedMeanwhile, TooLarge, Unprocessable)
        }
        # A proxy or Jupyter itself answered: only the status has a meaning.
        cls = by_status.get(status, EdtError)
    return cls(message, hint=hint, **{str(k): v for k, v in ids.items()})
