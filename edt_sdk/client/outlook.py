"""What would be submitted and when it would start, as plain data that reads well."""

from __future__ import annotations

from edt_sdk.packing.table import listing
from edt_sdk.schemas.forecast import Forecast, Preview


class Outlook(Forecast, frozen=True, kw_only=True):
    """A `Forecast` with its sentence as its repr. `Forecast` describes its fields."""

    def __repr__(self) -> str:
        return self.text


class PackagePreview(Preview, frozen=True, kw_only=True):
    """A `Preview` with the list of its files and the forecast as its repr. `Preview` describes its fields."""

    def __repr__(self) -> str:
        files = [(file.name, file.size) for file in self.files]
        return f"{listing('Would pack', files, self.main, notes=self.notes)}\n{self.forecast.text}"
