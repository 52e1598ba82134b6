"""Validations: start one of a trained job, read what one came to."""

from __future__ import annotations

from jupyter_server.utils import url_path_join

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.validation import NewValidation


class ValidationsHandler(EdtHandler):
    """`/jobs/{id}/validations`."""

    auth_resource = "edt:jobs"

    async def post(self, job: str) -> None:
        """Validate what the job trained; the answer is the job that does it."""
        new = parse_change(self.request.body or b"{}", NewValidation)
        view = await self.service.validations.start(self.user, job, new)
        self.set_header("Location", url_path_join(self.base_url, "edt/api/jobs", view.id))
        self.reply(view, 201)


class ValidationHandler(EdtHandler):
    """`/jobs/{id}/validation`."""

    auth_resource = "edt:artifacts"

    async def get(self, job: str) -> None:
        """What came out of the validation with this id."""
        self.reply(await self.service.validations.result(self.user, job))
