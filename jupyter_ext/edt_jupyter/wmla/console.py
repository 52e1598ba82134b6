"""What the console's routes share: the JSON body, and the instance group it names."""

from __future__ import annotations

from typing import Any

import msgspec

from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_server.wmla import ids


class ConsoleHandler(WmlaHandler):
    """Base of the handlers for data sets, templates, models and trainings."""

    @property
    def body(self) -> dict[str, Any]:
        """Return the request's JSON object. Raises InvalidRequest for any other body."""
        try:
            found = msgspec.json.decode(self.request.body or b"{}")
        except (msgspec.DecodeError, RecursionError) as wrong:
            raise InvalidRequest(f"The body is not JSON: {wrong}.") from None
        if not isinstance(found, dict):
            raise InvalidRequest("The body is not a JSON object.")
        return found

    @property
    def first_group(self) -> str:
        """Return the instance group of a job that names none."""
        return self.service.sharing.plan.group("").name

    def group(self, identifier: object) -> str:
        """Return the instance group with this id or name, the first for none. Unprocessable for an unknown group."""
        if not identifier:
            return self.first_group
        names = [group.name for group in self.service.sharing.plan.leaves()]
        found = ids.group_with(str(identifier), names)
        if found is None:
            raise Unprocessable(f"There is no instance group {identifier}.", hint=f"There are {', '.join(names)}.")
        return found

    def done(self, text: str, remarks: tuple[str, ...] = (), **more: Any) -> None:
        """Answer that the request succeeded, with remarks about fields that have no meaning here."""
        self.reply({**more, "message": " ".join([text, *remarks])})
