"""What a client asks before anything else (`/conf`), and whether all is well (`/status`)."""

from __future__ import annotations

from importlib.metadata import version

from edt_jupyter.wmla.base import WmlaHandler


class ConfHandler(WmlaHandler):
    """`/conf`."""

    auth_resource = "edt:cluster"

    async def get(self) -> None:
        """The settings that clients look for; all values are strings."""
        settings, data_dir = self.service.settings, self.service.settings.data_dir
        self.reply(
            {
                "MSD_ENABLED": "true",
                "DLI_DATA_FS": settings.data_fs,
                "DLI_RESULT_FS": str(data_dir / "results"),
                "DLI_VERSION": f"jupyter-edt {version('jupyter-edt')}",
            }
        )


class StatusHandler(WmlaHandler):
    """`/status`."""

    auth_resource = "edt:cluster"

    async def get(self) -> None:
        """Whether jobs can be started, and how many slots there are."""
        trouble = self.service.trouble
        self.reply(
            {
                "status": "OK" if trouble is None else "ERROR",
                "message": "" if trouble is None else str(trouble),
                "version": version("jupyter-edt"),
                "slots": self.service.capacity,
            }
        )
