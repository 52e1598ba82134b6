"""Versions of models: register, list, show, change, name, download, train again, compare and delete."""

from __future__ import annotations

import asyncio

from edt_jupyter.api.outputs import send_archive
from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.http.upload import Upload
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.serving.versions import NewFolderVersion, NewVersion, VersionPatch, VersionReference


class _VersionsHandler(EdtHandler, path="/versions", resource="edt:catalogue"):
    async def get(self) -> None:
        """List the user's versions, of one name or of all."""
        name = self.get_query_argument("name", None)
        self.reply({"versions": await self.service.versions.versions(self.user, name)})

    async def post(self) -> None:
        """Make a version of a job's weights. Returns the version, also one that was there with the same."""
        version, made = await self.service.versions.register(self.user, parse_change(self.request.body, NewVersion))
        self.set_header("Location", f"{self.base_url}edt/api/versions/{version.id}")
        self.reply(version, 201 if made else 200)


class _FoldersHandler(ReceivingHandler[Upload], path="/versions/folders", resource="edt:catalogue"):
    open_sink = Upload

    async def received(self, sink: Upload) -> None:
        """Make a version of a folder. Returns the version, also one that was there with the same code."""
        spec, package = await asyncio.to_thread(sink.finish)
        new = parse_change(spec, NewFolderVersion)
        version, made = await self.service.versions.register_folder(self.user, new, package)
        self.set_header("Location", f"{self.base_url}edt/api/versions/{version.id}")
        self.reply(version, 201 if made else 200)


class _OfVersion(EdtHandler):
    def wanted(self, name: str, which: str) -> VersionReference:
        """Return the version that an address names: by its number, or by @ and an alias."""
        if not which.isascii() or not (which.isdigit() or which.startswith("@")):
            raise InvalidRequest(f"{which!r:.60} is no number of a version.", hint="Such as 3 or @champion.")
        return VersionReference.of(f"{name}{'' if which.startswith('@') else '/'}{which}")


class _VersionHandler(_OfVersion, path="/versions/{name}/{which}", resource="edt:catalogue"):
    async def get(self, name: str, which: str) -> None:
        """Return the version."""
        self.reply(await self.service.versions.version(self.user, self.wanted(name, which)))

    async def patch(self, name: str, which: str) -> None:
        """Change its description or its tags."""
        patch = parse_change(self.request.body, VersionPatch)
        self.reply(await self.service.versions.change(self.user, self.wanted(name, which), patch))

    async def delete(self, name: str, which: str) -> None:
        """Remove the version. Refused while an alias means it."""
        await self.service.versions.delete(self.user, self.wanted(name, which))
        self.set_status(204)
        self.finish()


class _AliasHandler(_OfVersion, path="/versions/{name}/{which}/aliases/{alias}", resource="edt:catalogue"):
    async def put(self, name: str, which: str, alias: str) -> None:
        """Let the alias mean this version, and no other one."""
        self.reply(await self.service.versions.set_alias(self.user, self.wanted(name, which), alias))

    async def delete(self, name: str, which: str, alias: str) -> None:
        """Take the alias away."""
        self.reply(await self.service.versions.remove_alias(self.user, self.wanted(name, which), alias))


class _ArchiveHandler(_OfVersion, path="/versions/{name}/{which}/archive", resource="edt:artifacts"):
    async def get(self, name: str, which: str) -> None:
        """Send its weights and its code as a zip."""
        await send_archive(self, await self.service.versions.archive(self.user, self.wanted(name, which)))


class _ExampleHandler(_OfVersion, path="/versions/{name}/{which}/example", resource="edt:catalogue"):
    async def get(self, name: str, which: str) -> None:
        """Return the inputs of a request to a deployment of it, null where none is known."""
        self.reply({"inputs": await self.service.versions.example(self.user, self.wanted(name, which))})


class _ReproduceHandler(_OfVersion, path="/versions/{name}/{which}/reproduce", resource="edt:jobs"):
    async def post(self, name: str, which: str) -> None:
        """Train it again. Returns the job."""
        view = await self.service.versions.reproduce(self.user, self.wanted(name, which))
        self.set_header("Location", f"{self.base_url}edt/api/jobs/{view.id}")
        self.reply(view, 201)


class _ComparisonHandler(_OfVersion, path="/versions/{name}/{which}/comparison", resource="edt:catalogue"):
    async def get(self, name: str, which: str) -> None:
        """Return whether a job has trained the same weights."""
        job = self.get_query_argument("job", "")
        if not job:
            raise InvalidRequest("Which job?", hint="Name it: …/comparison?job=ID.", field="job")
        self.reply(await self.service.versions.compare(self.user, self.wanted(name, which), job))
