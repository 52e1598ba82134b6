"""Define the one tree of errors that users meet, on either side of the wire.

The server raises them, the HTTP layer writes them as JSON `{"message", "code", "hint", …}` with their status, and the
SDK raises the same class again from that JSON.
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

    def __init_subclass__(cls, *, status: int | None = None, code: str | None = None) -> None:
        # What is not given is inherited.
        cls.status = cls.status if status is None else status
        cls.code = cls.code if code is None else code

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


class InvalidRequest(EdtError, status=400, code="invalid_request"):
    """The request is malformed. A retry of the same request fails again."""


class UnknownArgument(InvalidRequest, TypeError, code="unknown_argument"):
    """A function was called with an argument that it does not have, or without one that it needs."""


class PackageError(InvalidRequest, code="bad_package"):
    """The package cannot be unpacked safely, or misses what the job needs."""


class NotAllowed(EdtError, status=403, code="not_allowed"):
    """The caller may not do this with this job."""


class NotFound(EdtError, status=404, code="not_found"):
    """What was asked for does not exist."""


class Conflict(EdtError, status=409, code="conflict"):
    """The job's state does not allow this."""


class ChangedMeanwhile(EdtError, status=412, code="changed_meanwhile"):
    """The version that the change is based on is no longer current: read it again."""


class TooLarge(EdtError, status=413, code="too_large"):
    """The package is larger than the server accepts."""


class Unprocessable(EdtError, status=422, code="unprocessable"):
    """Understood, but it can never be done here."""


class NotBuiltYet(Unprocessable, code="not_built_yet"):
    """Documented for a later release."""


class JobFailed(EdtError, code="job_failed"):
    """The awaited job did not finish. `state` is the final state."""


class WaitTimeout(EdtError, code="wait_timeout"):
    """Waiting ended, the job did not."""


class ServerUnreachable(EdtError, status=503, code="server_unreachable"):
    """No jupyter-edt server could be found, or it does not answer."""


class StorageFailed(EdtError, status=507, code="storage_failed"):
    """The server could not write what was sent."""


BY_CODE: dict[str, type[EdtError]] = {
    each.code: each for each in list(globals().values()) if isinstance(each, type) and issubclass(each, EdtError)
}


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
    # Without a code a proxy or Jupyter itself answered: only the status has a meaning.
    by_status = next((each for each in BY_CODE.values() if each.status == status < 500), EdtError)
    return BY_CODE.get(code, by_status)(message, hint=hint, **ids)
