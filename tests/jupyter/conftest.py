"""A Jupyter Server with the extension, in this process, with folders of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from types import SimpleNamespace

import pytest
from tornado.httpclient import HTTPClientError

from tests.packages import SLEEPER, packed
from tests.waiting import LIMIT, until_async


@pytest.fixture(autouse=True)
def own_log():
    """The extension hangs the service's logger below Jupyter's; what is left in this process logs as before."""
    logger = logging.getLogger("edt_server")
    parent = logger.parent
    yield
    logger.parent = parent
    logger.setLevel(logger.level)  # forget which levels were enabled below the other parent


@pytest.fixture
def edt_config():
    """Traits of EdtApp; a test overrides this to change them."""
    return {}


@pytest.fixture
def jp_server_config(tmp_path, edt_config):
    return {
        "ServerApp": {
            "jpserver_extensions": {"edt_jupyter": True},
            "allow_unauthenticated_access": False,
            "reraise_server_extension_failures": True,
        },
        "EdtApp": {
            "data_dir": str(tmp_path / "edt"),
            "local_slots": 2,
            "threads_per_slot": 1,
            "warm_workers": 0,
            **edt_config,
        },
    }


@pytest.fixture
def edt(jp_serverapp, jp_asyncio_loop):
    """The extension, started; stopped again with every job it left."""
    app = jp_serverapp.extension_manager.extension_apps["edt_jupyter"]
    (app,) = app
    jp_asyncio_loop.run_until_complete(jp_serverapp.extension_manager.start_all_extensions())
    yield app
    jp_asyncio_loop.run_until_complete(_stop(app))


async def _stop(app):
    if app._service is not None:
        service = app.service
        for user in {view.owner for view in await service.jobs("", everybody=True)}:
            await service.stop_all(user)
        await until_async(lambda: not service.busy, "the last job's end")
        for view in await service.jobs("", everybody=True):
            await service._supervision.gone(view.id, LIMIT)
    await app.stop_extension()


def multipart(*parts, boundary="XXX-boundary-XXX"):
    """(name, content) parts as a body with its Content-Type."""
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n\r\n%s\r\n'
        % (boundary.encode(), name.encode(), name.encode(), content)
        for name, content in parts
    )
    return body + b"--%s--\r\n" % boundary.encode(), f"multipart/form-data; boundary={boundary}"


@pytest.fixture
def call(edt, jp_fetch):
    """Send a request; (status, JSON or bytes, headers), whatever the status."""

    async def send(method, path, *, body=None, headers=None, params=None, **kwargs):
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            response = await jp_fetch(
                "edt", "api", *path.strip("/").split("/"),
                method=method, body=body, headers=headers, params=params, allow_nonstandard_methods=True,
                request_timeout=LIMIT, **kwargs,
            )  # fmt: skip
        except HTTPClientError as error:
            if error.response is None:
                raise
            response = error.response
        content = response.body
        with contextlib.suppress(ValueError):
            content = json.loads(content) if content else None
        return SimpleNamespace(status=response.code, json=content, body=response.body, headers=response.headers)

    return send


@pytest.fixture
def submit(call):
    """POST a submission, by itself of a plain job that sleeps; keyword arguments change the specification."""

    async def send(files=None, *, spec=None, headers=None, archive=None, parts=None, **changes):
        if files is None:
            files, changes = {"train.py": SLEEPER}, {"framework": "PyTorch", **changes}
        spec = {"name": "test job", "main": "train.py", "max_workers": 1, **changes} if spec is None else spec
        archive = packed(files) if archive is None else archive
        parts = (("spec", json.dumps(spec).encode()), ("package", archive)) if parts is None else parts
        body, content_type = multipart(*parts)
        return await call("POST", "jobs", body=body, headers={"Content-Type": content_type, **(headers or {})})

    return send


@pytest.fixture
def leftovers(tmp_path):
    """Files below the data folder that a refused submission may have left."""

    def look():
        root = tmp_path / "edt"
        places = ("uploads", "results", "jobs")
        return sorted(
            os.path.relpath(os.path.join(place, name), root)
            for folder in places
            for place, _, files in os.walk(root / folder)
            for name in files
        )

    return look
