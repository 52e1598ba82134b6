"""The first requests of a client: the settings (`/conf`), and the server's health (`/status`)."""

from __future__ import annotations

from importlib.metadata import version

from edt_jupyter.wmla.base import WmlaHandler


class _ConfHandler(WmlaHandler, path="/conf", resource="edt:cluster"):
    async def get(self) -> None:
        """Return the settings that clients look for. All values are strings."""
        settings, data_dir = self.service.settings, self.service.settings.data_dir
        self.reply(
            {
                # dlicmd asks for it before every command, and compares the text of this value with "true".
                "MSD_ENABLED": "true",
                "DLI_DATA_FS": settings.data_fs,
                "DLI_RESULT_FS": str(data_dir / "results"),
                "DLI_VERSION": f"jupyter-edt {version('jupyter-edt')}",
            }
        )


class _StatusHandler(WmlaHandler, path="/status", resource="edt:cluster"):
    async def get(self) -> None:
        """Return whether jobs can be started, and the number of slots."""
        trouble = self.service.trouble
        self.reply(
            {
                "status": "OK" if trouble is None else "ERROR",
                "message": "" if trouble is None else str(trouble),
                "version": version("jupyter-edt"),
                "slots": self.service.capacity,
            }
        )
