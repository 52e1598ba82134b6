"""`%edt_submit`, `%%edt_submit` and `%edt_clone`: the magics that submit jobs.

The source is a folder, a file, this notebook's cells, one cell with the code it needs, or an earlier job.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from edt_sdk.notebook.magic_options import (
    job_argument,
    line_cell_magic,
    line_magic,
    magics,
    option,
    options_of,
    parse,
    parsed,
    words,
)
from edt_sdk.notebook.magic_session import MagicSession
from edt_sdk.packing.cell_needs import take_along
from edt_sdk.packing.cells import cells_of
from edt_sdk.packing.sources import Collected, from_cells
from edt_sdk.schemas.errors import PackageError
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import CLONEABLE, SUBMITTABLE, JobSpec
from edt_sdk.torchrun.command_line.submission import asked

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.client import Job, PackagePreview

TAG = "edt"
_SCRIPT_ARGS = re.compile(r"(?:^|\s)--(?:\s|$)")


@magics
class SubmitMagics(Magics):
    """The magics that make jobs."""

    def __init__(self, shell: InteractiveShell, session: MagicSession) -> None:
        super().__init__(shell)
        self._session = session

    @parsed
    @option("source", nargs="?", help="a folder, a .py or an .ipynb file; not in a cell magic, which sends its cell")
    @option("--notebook", action="store_true", help=f"send this notebook's cells that have the tag {TAG!r}")
    @option("--tag", metavar="TAG", help=f"of a notebook only the cells with this tag (--notebook: {TAG})")
    @option("--dry-run", action="store_true", help="submit nothing: list what would be sent, and when it would start")
    @option("--main", metavar="FILE", help="main script, relative to the folder")
    @options_of(JobSpec, *SUBMITTABLE)
    @option("--quiet", action="store_true", help="do not list what is packed")
    @line_cell_magic
    def edt_submit(self, line: str, cell: str | None = None) -> Job | PackagePreview:
        """Submit a training, and return its Job.

        What follows a lone -- goes to the script, or to torchrun. Variables of the notebook are put
        in where {name} or $name stands. Over a cell, the functions, classes, imports and plain values that the
        cell uses are taken along from the cells that were run before; what was taken is listed.

        Examples:
          job = %edt_submit digits --max-workers 4 -- --epochs 20
          job = %edt_submit digits --name lr-{rate} -- --lr {rate}
          %edt_submit digits --max-workers 4 --dry-run
          %edt_submit --notebook --max-workers 2
        """
        own, rest = _cut(line)
        options = parse(self.edt_submit, own)
        self._check(options, cell)
        try:
            if cell is not None:
                options.source = self._from_cell(cell, options.main)
            elif options.notebook:
                options.source, options.tag = self._this_notebook(), options.tag or TAG
        except PackageError as refused:
            raise UsageError(str(refused)) from None
        options.args = words(rest)
        wishes: dict[str, Any] = {"tag": options.tag, **self._given(options, SUBMITTABLE)}
        if options.dry_run:
            looked: PackagePreview = self._session.run(lambda client: client.preview(**asked(options), **wishes))
            return looked
        progress = not options.quiet
        job = self._session.run(lambda client: client.submit(**asked(options), **wishes, progress=progress))
        return self._session.touched(job)

    @parsed
    @job_argument
    @options_of(JobSpec, *CLONEABLE, unset=True)
    @line_magic
    def edt_clone(self, line: str) -> Job:
        """Submit another job of the package that a job was submitted with, and return it.

        What is not given is as in that job; what follows a lone -- goes to the script, in place of its arguments.

        Example:
          again = %edt_clone first --priority 8000 -- --lr 0.01
        """
        own, rest = _cut(line)
        options = parse(self.edt_clone, own)
        cloned = self._session.job(options.job)
        said = self._given(options, CLONEABLE)
        # A lone -- without words after it means no arguments. Without -- the earlier job's arguments stay.
        if _SCRIPT_ARGS.search(line):
            said["args"] = words(rest)
        made: Job = self._session.run(lambda _: cloned.clone(**said))
        return self._session.touched(made)

    def _given(self, options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
        """Return the options that were given. A variable may stand for the job of a warm start."""
        found = given(options, names)
        return found | ({"warm_start": self._session.named(found["warm_start"])} if "warm_start" in found else {})

    @staticmethod
    def _check(options: Any, cell: str | None) -> None:
        if cell is not None and (options.source is not None or options.notebook or options.tag):
            raise UsageError("%%edt_submit sends the cell; it takes no source.")
        if options.notebook and options.source is not None:
            raise UsageError("--notebook sends this notebook; leave the source out, or name a notebook with --tag.")
        torchrun = options.framework == "torchrun"  # which may name its script behind --
        if cell is None and not options.notebook and options.source is None and not torchrun:
            raise UsageError("%edt_submit needs a folder, a .py or an .ipynb file, or --notebook.")

    def _from_cell(self, cell: str, main: str | None) -> Collected:
        taken = take_along(cell, self._history(), dict(self.shell.user_ns))  # type: ignore[union-attr]
        cells = [taken.script, cell] if taken.script else [cell]
        return from_cells(cells, "cells", Path.cwd(), main=main, notes=taken.notes)

    def _this_notebook(self) -> Path:
        from edt_sdk.notebook.notebook_path import (
            notebook_path,  # brings the network, which loading the magics does not need
        )

        path = notebook_path(self.shell.user_ns)  # type: ignore[union-attr]
        history = self._history()
        running = history[-1].strip() if history else ""
        if "edt_submit" in running and running not in [cell.strip() for cell in cells_of(path)]:
            saved = time.strftime("%H:%M:%S", time.localtime(path.stat().st_mtime))
            raise PackageError(
                f"{path.name} has changes that are not saved: it was saved at {saved}, without this very cell.",
                hint="Save it (Ctrl+S), then run this again: what is saved is what is sent.",
                field="source",
            )
        return path

    def _history(self) -> Sequence[str]:
        """Return the cells of this session as typed. The running cell is last."""
        manager: Any = getattr(self.shell, "history_manager", None)
        return () if manager is None else tuple(manager.input_hist_raw)


def _cut(line: str) -> tuple[str, str]:
    """Split the line at a lone `--`."""
    # Cut before argparse sees the line: it would take the script's options for ours.
    found = _SCRIPT_ARGS.search(line)
    return (line[: found.start()], line[found.end() :]) if found else (line, "")
