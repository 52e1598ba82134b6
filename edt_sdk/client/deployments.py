"""`Deployment`: a version of a model that answers requests under a name. `DeploymentClient` makes them.

Requests of this module go through Jupyter Server and its login. Other callers have a key, and call `url`.
"""

from __future__ import annotations

import io
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from edt_sdk.client.job import Job
from edt_sdk.client.session import ServerSession
from edt_sdk.client.versions import Version
from edt_sdk.display.catalogue_view import DEPLOYMENT_HEAD, deployment_cells, deployment_rows, revision_table
from edt_sdk.formatting.tables import html_table, text_table
from edt_sdk.http.connection import Connection
from edt_sdk.schemas.errors import JobFailed, WaitTimeout
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.forecast import Forecast
from edt_sdk.schemas.serving import deployments as schema
from edt_sdk.schemas.serving.deployments import (
    DEFAULT_PRIORITY,
    DeploymentKey,
    DeploymentPatch,
    DeploymentState,
    NewDeployment,
    NewKey,
    NewRevision,
    origins_of,
    replicas_of,
)

if TYPE_CHECKING:
    import numpy as np

_DEPLOYMENTS = "deployments"
_NONE = "No deployments yet: client.deploy(version) makes one."
_NPY = "application/x-npy"
_LOOK = 0.1  # seconds between two looks at a deployment that is waited for
_LOOK_LATER = 1.0


class Deployment:
    """A deployment. Its attributes are those of the schema of that name, as of the last request.

    Attributes:
        view: everything the server says about it.
    """

    def __init__(self, connection: Connection, view: schema.DeploymentView) -> None:
        self._connection = connection
        self.view = view

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of the view."""
            if name in schema.DeploymentView.__struct_fields__:
                return getattr(self.view, name)
            raise AttributeError(f"{type(self).__name__} has no {name!r}.")

    @property
    def name(self) -> str:
        """Return the name that it is called by."""
        return self.view.name

    @property
    def url(self) -> str:
        """Return the address for callers with a key, "" while nothing takes requests."""
        return self.refresh().view.url

    @property
    def state(self) -> DeploymentState:
        """Return what it does with a request, as of the last request of this client."""
        return self.view.state

    @property
    def job(self) -> Job:
        """Return the job of the replicas that answer most callers, with its logs, its story and its pictures."""
        newest = max(self.refresh().view.revisions, key=lambda each: (each.share, each.number))
        return Job(self._connection, newest.job)

    def refresh(self) -> Deployment:
        """Ask the server again."""
        return self._answer("GET")

    def wait_ready(self, timeout: float | None = None) -> Deployment:
        """Wait until it answers requests, and return it.

        Raises JobFailed when its version cannot be served, WaitTimeout after `timeout` seconds.
        """
        begun = time.monotonic()
        while self.refresh().view.state is not DeploymentState.READY:
            if self.view.state in (DeploymentState.FAILED, DeploymentState.STOPPED):
                raise JobFailed(
                    f"{self.name} is {self.view.state.value.lower()}. {self.view.message}".strip(),
                    hint=f"Its log says more: client.deployment({self.name!r}).logs().",
                )
            waited = time.monotonic() - begun
            if timeout is not None and waited >= timeout:
                raise WaitTimeout(f"{self.name} is not ready after {timeout:g} s. {self.view.message}".strip())
            time.sleep(_LOOK if waited < _LOOK_LATER * 10 else _LOOK_LATER)
        return self

    # --- requests -----------------------------------------------------------------------------------------------------

    def predict(self, inputs: Any) -> Any:
        """Ask the model, and return its answer.

        Args:
            inputs: an array, a tensor or nested lists of numbers, a row for each answer. Or a dictionary of such, for a
                model with several inputs. Anything else that is JSON goes to a `Predictor`.

        Returns an array of numpy for an array, a tensor or lists of numbers, else what the model returned as JSON.

        Raises InvalidRequest when the model cannot take them, ServerUnreachable when no replica can answer.
        """
        array = _array(inputs)
        if array is None:
            said = {name: _listed(value) for name, value in inputs.items()} if isinstance(inputs, Mapping) else inputs
            return self._ask(msgspec.json.encode({"inputs": said}), "application/json")
        import numpy as np

        body = io.BytesIO()
        np.save(body, array, allow_pickle=False)
        return self._ask(body.getvalue(), _NPY)

    def curl(self, inputs: Any = "…") -> str:
        """Return a line for a shell that asks it. Put a key in the place of $KEY, unless it is public."""
        said = msgspec.json.encode({"inputs": _listed(inputs)}).decode()
        key = "" if self.view.public else '-H "Authorization: Bearer $KEY" '
        return f"curl {self.url} {key}-H 'Content-Type: application/json' -d {shlex.quote(said)}"

    def _ask(self, body: bytes, content_type: str) -> Any:
        headers = {"Content-Type": content_type}
        with self._connection.open("POST", f"{self._path}/predict", data=body, headers=headers) as response:
            if response.headers.get("Content-Type", "").startswith(_NPY):
                import numpy as np

                return np.load(io.BytesIO(response.content), allow_pickle=False)
            return msgspec.json.decode(response.content)["outputs"]

    # --- changes ------------------------------------------------------------------------------------------------------

    def update(
        self,
        version: Version | str | int,
        *,
        canary: int | None = None,
        max_batch: int | None = None,
        exact: bool | None = None,
        deadline: float | None = None,
    ) -> Deployment:
        """Let another version take over as soon as it can answer, without a request that fails.

        Args:
            version: a version, its name such as "digits@champion", or a number of the present name.
            canary: percent of the callers that it answers until `promote()`.
            max_batch: as in `deploy`. Left out it stays as it is, like the next two.
            exact: likewise.
            deadline: likewise.
        """
        last = self.refresh().view.revisions[0]
        named = f"{self.view.version.partition('/')[0]}/{version}" if isinstance(version, int) else _named(version)
        new = NewRevision(
            version=named,
            max_batch=last.max_batch if max_batch is None else max_batch,
            exact=last.exact if exact is None else exact,
            deadline=last.deadline if deadline is None else deadline,
            canary=canary,
        ).check()
        return self._answer("POST", "/revisions", body=new)

    def change(
        self,
        *,
        replicas: int | str | Sequence[int] | None = None,
        priority: int | None = None,
        description: str | None = None,
        space: str | None = None,
        public: bool | None = None,
        origins: Sequence[str] | str | None = None,
        release_after: float | None = None,
        idle_after: float | None = None,
    ) -> Deployment:
        """Change settings of it. None leaves one as it is. They are described at `deploy`."""
        patch = DeploymentPatch(
            replicas=None if replicas is None else replicas_of(replicas),
            priority=priority,
            description=description,
            space=space,
            public=public,
            origins=None if origins is None else origins_of(origins),
            release_after=release_after,
            idle_after=idle_after,
        ).check()
        return self._answer("PATCH", body=patch)

    def scale(self, least: int, most: int | None = None) -> Deployment:
        """Set the fewest and the most replicas."""
        return self.change(replicas=(least, least if most is None else most))

    def promote(self) -> Deployment:
        """Let the coming revision answer all callers."""
        return self._answer("POST", "/promote")

    def abort(self) -> Deployment:
        """Give the coming revision up."""
        return self._answer("POST", "/abort")

    def rollback(self) -> Deployment:
        """Give the coming revision up, or serve again what answered before the present one."""
        return self._answer("POST", "/rollback")

    def stop(self) -> Deployment:
        """Refuse requests from now on, and give up its slots."""
        return self._answer("POST", "/stop")

    def start(self) -> Deployment:
        """Serve again what it served last."""
        return self._answer("POST", "/start")

    def delete(self) -> None:
        """Remove it. Its replicas end, and its name is free."""
        self._connection.json("DELETE", self._path)

    # --- keys and what it does ----------------------------------------------------------------------------------------

    def create_key(self, name: str, *, days: float | None = None) -> str:
        """Make a key for callers, and return it. It is shown this once and kept nowhere.

        Args:
            name: who it is for.
            days: after which it expires, None for never.
        """
        answer = self._connection.json("POST", f"{self._path}/keys", body=NewKey(name=name, days=days).check())
        return msgspec.convert(answer, DeploymentKey).key

    def revoke_key(self, key: str) -> None:
        """Refuse a key from now on. `key` is the key, or its id as `keys` lists it."""
        identity = key.split("_")[1] if key.startswith("edtk_") else key
        self._connection.json("DELETE", f"{self._path}/keys/{quote(identity, safe='')}")

    def logs(self, **options: Any) -> Any:
        """Return the log of its replicas. Options are those of `Job.logs`."""
        return self.job.logs(**options)

    def revisions(self) -> str:
        """Return all its revisions as a table, the newest first."""
        return revision_table(self.refresh().view)

    @property
    def _path(self) -> str:
        return f"{_DEPLOYMENTS}/{quote(self.view.name, safe='')}"

    def _answer(self, method: str, verb: str = "", **more: Any) -> Deployment:
        answer = self._connection.json(method, f"{self._path}{verb}", **more)
        self.view = msgspec.convert(answer, schema.DeploymentView, strict=False)
        return self

    def __repr__(self) -> str:
        return text_table((self.name, ""), deployment_rows(self.view))

    def _repr_html_(self) -> str:
        return html_table((self.name, ""), deployment_rows(self.view))


class DeploymentList(list[Deployment]):
    """Lists deployments as of the time of the request. Behaves like a list otherwise."""

    def __repr__(self) -> str:
        return text_table(DEPLOYMENT_HEAD, [deployment_cells(each.view) for each in self]) if self else _NONE

    def _repr_html_(self) -> str:
        return html_table(DEPLOYMENT_HEAD, [deployment_cells(each.view) for each in self], empty=_NONE)


@names_checked
class DeploymentClient(ServerSession):
    """A client for the deployments of a server."""

    def deploy(
        self,
        version: Version | str,
        *,
        name: str = "",
        replicas: int | str | Sequence[int] = (1, 1),
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        max_batch: int = 32,
        exact: bool = False,
        deadline: float = 30.0,
        description: str = "",
        space: str = "",
        public: bool = False,
        origins: Sequence[str] | str = (),
        release_after: float = 60.0,
        idle_after: float = 300.0,
    ) -> Deployment:
        """Let a version answer requests, on slots like those of trainings.

        Args:
            version: a version, or its name: "digits/3", "digits@champion", or "digits" for the newest.
            name: under which it is called. By default the version's.
            replicas: how many, or the fewest and the most, such as (0, 3). It has as many as its load needs. With 0 it
                gives up its last slot while there is no load.
            priority: weight of its replicas under fair share, by default twice a training's.
            instance_group: the queue of its replicas, by default the server's first.
            max_batch: most rows that a replica computes at once.
            exact: the bits of an answer do not depend on the load: every batch has `max_batch` rows.
            deadline: seconds that a request may take.
            description: text for people.
            space: a word that deployments are grouped by, such as "production".
            public: everybody who can reach the server may call it, without a key.
            origins: origins whose web pages may call it. "*" for all.
            release_after: seconds without need after which it gives up a replica.
            idle_after: seconds without a request after which it gives up the last one, where replicas begin with 0.

        Raises:
            NotFound: there is no such version.
            Conflict: the name is taken, or the weights on disk have changed.
            Unprocessable: the version was not trained by the elastic engine, and has no predictor.py.
        """
        new = NewDeployment(
            version=_named(version),
            name=name,
            replicas=replicas_of(replicas),
            priority=priority,
            instance_group=instance_group,
            max_batch=max_batch,
            exact=exact,
            deadline=deadline,
            description=description,
            space=space,
            public=public,
            origins=origins_of(origins),
            release_after=release_after,
            idle_after=idle_after,
        ).check()
        return self._deployment(self._connection.json("POST", _DEPLOYMENTS, body=new))

    def preview_deployment(
        self,
        version: Version | str,
        *,
        replicas: int | str | Sequence[int] = (1, 1),
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
    ) -> Forecast:
        """Return when such a deployment would answer, and on whose slots. Nothing is started.

        Arguments and errors are those of `deploy`. `forecast.text` is one sentence with the numbers.
        """
        new = NewDeployment(
            version=_named(version), replicas=replicas_of(replicas), priority=priority, instance_group=instance_group
        ).check()
        return msgspec.convert(self._connection.json("POST", "previews/deployment", body=new), Forecast)

    def deployments(self, space: str | None = None) -> DeploymentList:
        """My deployments, by name: those of a space, or all."""
        answer = self._connection.json("GET", _DEPLOYMENTS, params={"space": space})
        return DeploymentList(self._deployment(each) for each in answer["deployments"])

    def deployment(self, name: str) -> Deployment:
        """Return the deployment of that name. Raises NotFound when there is none."""
        return self._deployment(self._connection.json("GET", f"{_DEPLOYMENTS}/{quote(name, safe='')}"))

    def _deployment(self, answer: Any) -> Deployment:
        return Deployment(self._connection, msgspec.convert(answer, schema.DeploymentView, strict=False))


def _named(version: Version | str) -> str:
    return version.id if isinstance(version, Version) else version


def _array(inputs: Any) -> np.ndarray[Any, Any] | None:
    """Return inputs as an array of numbers, None for something else."""
    if isinstance(inputs, str | bytes | Mapping):
        return None
    # Here and not at the top: most clients never need it.
    import numpy as np

    try:
        array = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def _listed(value: Any) -> Any:
    array = _array(value)
    return value if array is None else array.tolist()
