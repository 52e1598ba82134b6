"""A source becomes a package: which files (`sources.py`), and how they travel (`archive.py`, `upload.py`).

Stands on the standard library, pathspec and the schemas alone: the SDK packs what a notebook submits, and a Jupyter
server what its user picks in a form, by the same code.
"""

from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import Collected, Source, SourceFile, collect
from edt_sdk.packing.table import human_bytes, listing, packing_table
from edt_sdk.packing.upload import PROGRESS_AFTER, QUIET_VARIABLE, Multipart, upload_progress

__all__ = [
    "PROGRESS_AFTER",
    "QUIET_VARIABLE",
    "Collected",
    "Multipart",
    "Source",
    "SourceFile",
    "collect",
    "human_bytes",
    "listing",
    "packing_table",
    "upload_progress",
    "write_archive",
]
