"""Deployments: deploy, list, show, change, serve another version, keys, and requests through this server."""

from __future__ import annotations

from http import HTTPStatus

from tornado.httpclient import HTTPResponse

from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.edge import ask_edge, sentence
from edt_jupyter.http.forwarding import HEADER_LENGTH
from edt_sdk.schemas.errors import ServerUnreachable, from_json
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.serving.deployments import DeploymentPatch, NewDeployment, NewKey, NewRevision

_ANSWERED = ("Content-Type", "X-Request-Id", "X-EDT-Version", "X-EDT-Replica", "Server-Timing", HEADER_LENGTH)


class _DeploymentsHandler(EdtHandler, path="/deployments", resource="edt:deployments"):
    async def get(self) -> None:
        """List the user's deployments, of one space or of all."""
        space = self.get_query_argument("space", None)
        self.reply({"deployments": await self.service.deployments.deployments(self.user, space)})

    async def post(self) -> None:
        """Deploy a version under a name."""
        made = await self.service.deployments.deploy(self.user, parse_change(self.request.body, NewDeployment))
        self.set_header("Location", f"{self.base_url}edt/api/deployments/{made.name}")
        self.reply(made, 201)


class _PreviewHandler(EdtHandler, path="/previews/deployment", resource="edt:deployments"):
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """Return when a deployment would answer, and on whose slots. Starts nothing."""
        new = parse_change(self.request.body, NewDeployment)
        self.reply(await self.service.deployments.forecast(self.user, new))


class _DeploymentHandler(EdtHandler, path="/deployments/{name}", resource="edt:deployments"):
    async def get(self, name: str) -> None:
        """Return the deployment as it is now."""
        self.reply(await self.service.deployments.deployment(self.user, name))

    async def patch(self, name: str) -> None:
        """Change its settings."""
        patch = parse_change(self.request.body, DeploymentPatch)
        self.reply(await self.service.deployments.change(self.user, name, patch))

    async def delete(self, name: str) -> None:
        """Remove it. Its replicas end."""
        await self.service.deployments.delete(self.user, name)
        self.set_status(204)
        self.finish()


class _RevisionsHandler(EdtHandler, path="/deployments/{name}/revisions", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Let another version take over, or answer a part of the callers."""
        new = parse_change(self.request.body, NewRevision)
        self.reply(await self.service.deployments.update(self.user, name, new), 201)


class _PromoteHandler(EdtHandler, path="/deployments/{name}/promote", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Let the coming revision answer all callers."""
        self.reply(await self.service.deployments.promote(self.user, name))


class _AbortHandler(EdtHandler, path="/deployments/{name}/abort", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Give the coming revision up. The present one answers all callers."""
        self.reply(await self.service.deployments.abort(self.user, name))


class _RollbackHandler(EdtHandler, path="/deployments/{name}/rollback", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Give the coming revision up, or serve again what answered before the present one."""
        self.reply(await self.service.deployments.rollback(self.user, name))


class _StopHandler(EdtHandler, path="/deployments/{name}/stop", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Refuse requests from now on, and give up its slots."""
        self.reply(await self.service.deployments.stop_deployment(self.user, name))


class _StartHandler(EdtHandler, path="/deployments/{name}/start", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Serve again what it served last."""
        self.reply(await self.service.deployments.start(self.user, name))


class _KeysHandler(EdtHandler, path="/deployments/{name}/keys", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Make a key for callers. The answer is the only place that ever shows it."""
        new = parse_change(self.request.body, NewKey)
        self.reply(await self.service.deployments.create_key(self.user, name, new), 201)


class _KeyHandler(EdtHandler, path="/deployments/{name}/keys/{key}", resource="edt:deployments"):
    async def delete(self, name: str, key: str) -> None:
        """Revoke a key."""
        await self.service.deployments.revoke_key(self.user, name, key)
        self.set_status(204)
        self.finish()


class _Scoring(EdtHandler):
    async def ask(self, name: str, path: str) -> None:
        """Pass the request on to the edge, and its answer to the client."""
        answer = await ask_edge(self.service, self.user, name, path, self.request)
        if answer.code >= 400:
            # The status is the deployment's, and the body that of every error of this API.
            late = answer.code in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
            code = ServerUnreachable.code if late else from_json({}, answer.code).code
            self.reply({"code": code, "message": sentence(answer)}, answer.code)
            return
        self._pass_back(answer)

    def _pass_back(self, answer: HTTPResponse) -> None:
        self.set_status(answer.code)
        for each in _ANSWERED:
            if (value := answer.headers.get(each)) is not None:
                self.set_header(each, value)
        # JupyterServer sets a type of its own otherwise.
        self.finish(answer.body, set_content_type=answer.headers.get("Content-Type", "application/json"))


class _PredictHandler(_Scoring, path="/deployments/{name}/predict", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Ask the deployment: `{"inputs": …}` → `{"outputs": …, "version": …}`."""
        await self.ask(name, f"/predict/{name}")


class _InferHandler(_Scoring, path="/deployments/{name}/infer", resource="edt:deployments"):
    async def post(self, name: str) -> None:
        """Ask the deployment in the words of the Open Inference Protocol."""
        await self.ask(name, f"/v2/models/{name}/infer")
