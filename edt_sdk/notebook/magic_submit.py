"""`%edt_submit`, `%%edt_submit` and `%edt_clone`: what becomes a job.

A folder, a file, this notebook's cells, or one cell with what it needs; or a job that there is already.
"""

from __future__ import annotations

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
    parse,
    parsed,
    words,
)
from edt_sdk.notebook.magic_session import MagicSession
from edt_sdk.packing.cell_needs import take_along
from edt_sdk.packing.cells import cells_of
from edt_sdk.packing.sources import Collected, from_cells
from edt_sdk.schemas.errors import PackageError
from edt_sdk.torchrun.command_line.command import asked

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.client import Job, Package

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
    @option("--max-workers", type=int, default=1, metavar="N", help="most slots it may hold at once (default 1)")
    @option("--min-workers", type=int, default=1, metavar="N", help="slots it cannot run without (default 1)")
    @option("--slots-per-unit", type=int, default=1, metavar="N", help="its slots come N at a time (default 1)")
    @option("--pending-timeout", type=float, metavar="S", help="give up after S seconds without a slot")
    @option("--name", help="what to call it (default: from the source)")
    @option("--priority", type=int, default=5000, metavar="P", help="weight under fair share (default 5000)")
    @option("--instance-group", default="", metavar="G", help="the queue (default: the server's first)")
    @option(
        "--mode",
        choices=("exact", "fast"),
        default="exact",
        help="exact (default): equal bits for any number of workers",
    )
    @option("--seed", type=int, default=0, help="seed of the training (default 0)")
    @option("--threads-per-slot", type=int, metavar="N", help="threads of a worker")
    @option(
        "--warm-start", metavar="JOB", help="begin with the weights of another job: its id, or a variable that holds it"
    )
    @option("--framework", default="edtPyTorch", metavar="F", help="what runs it (default: edtPyTorch, our engine)")
    @option("--command", metavar="CMD", help="run this in a shell in place of the script; with another framework")
    @option("--data-path", default="", metavar="DIR", help="DATA_DIR, relative to the server's data folder")
    @option("--dataset", default="", metavar="NAME", help="a registered data set, whose folder is DATA_DIR")
    @option("--env", action="append", default=[], metavar="K=V", help="an environment variable; repeatable")
    @option("--quiet", action="store_true", help="do not list what is packed")
    @line_cell_magic
    def edt_submit(self, line: str, cell: str | None = None) -> Job | Package:
        """Submit a training, and return its Job.

        What follows a lone -- goes to the script, or is said to torchrun. Variables of the notebook are put
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
        env = _variables(options.env)
        try:
            if cell is not None:
                options.source = self._from_cell(cell, options.main)
            elif options.notebook:
                options.source, options.tag = self._this_notebook(), options.tag or TAG
        except PackageError as refused:
            raise UsageError(str(refused)) from None
        options.args = words(rest)
        wishes: dict[str, Any] = {
            "tag": options.tag,
            "name": options.name,
            "max_workers": options.max_workers,
            "min_workers": options.min_workers,
            "slots_per_unit": options.slots_per_unit,
            "pending_timeout": options.pending_timeout,
            "priority": options.priority,
            "instance_group": options.instance_group,
            "mode": options.mode,
            "seed": options.seed,
            "threads_per_slot": options.threads_per_slot,
            "warm_start": None if options.warm_start is None else self._session.named(options.warm_start),
            "framework": options.framework,
            "command": options.command or (),
            "data_path": options.data_path,
            "dataset": options.dataset,
            "env": env,
        }
        if options.dry_run:
            looked: Package = self._session.run(lambda client: client.preview(**asked(options), **wishes))
            return looked
        progress = not options.quiet
        job = self._session.run(lambda client: client.submit(**asked(options), **wishes, progress=progress))
        return self._session.touched(job)

    @parsed
    @job_argument
    @option("--main", metavar="FILE", help="another main script of the same package")
    @option("--name", help="what to call it")
    @option("--max-workers", type=int, metavar="N", help="most slots it may hold at once")
    @option("--min-workers", type=int, metavar="N", help="slots it cannot run without")
    @option("--priority", type=int, metavar="P", help="weight under fair share")
    @option("--instance-group", metavar="G", help="the queue")
    @option("--mode", choices=("exact", "fast"), help="equal bits for any number of workers, or not")
    @option("--seed", type=int, help="seed of the training")
    @option("--warm-start", metavar="JOB", help="begin with the weights of another job; '' for none")
    @option("--dataset", metavar="NAME", help="a registered data set; '' for none")
    @option("--env", action="append", metavar="K=V", help="its environment, in place of the job's; repeatable")
    @line_magic
    def edt_clone(self, line: str) -> Job:
        """Submit another job of the package that a job was submitted with, and return it.

        What is not said is as in that job; what follows a lone -- goes to the script, in place of its arguments.

        Example:
          again = %edt_clone first --priority 8000 -- --lr 0.01
        """
        own, rest = _cut(line)
        options = parse(self.edt_clone, own)
        env = None if options.env is None else _variables(options.env)
        cloned = self._session.job(options.job)
        names = ("main", "name", "max_workers", "min_workers", "priority", "instance_group", "mode", "seed", "dataset")
        said: dict[str, Any] = {name: getattr(options, name) for name in names}
        if options.warm_start is not None:
            said["warm_start"] = self._session.named(options.warm_start)
        if _SCRIPT_ARGS.search(line):
            said["args"] = words(rest)
        made: Job = self._session.run(lambda _: cloned.clone(env=env, **said))
        return self._session.touched(made)

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
        """The cells of this session as they were typed, the one that runs last."""
        manager: Any = getattr(self.shell, "history_manager", None)
        return () if manager is None else tuple(manager.input_hist_raw)


def _variables(pairs: Sequence[str]) -> dict[str, str]:
    split = [text.partition("=") for text in pairs]
    if wrong := [key for key, sign, _ in split if not (key and sign)]:
        raise UsageError(f"--env takes KEY=VALUE, not {wrong[0]!r}.")
    return {key: value for key, _, value in split}


def _cut(line: str) -> tuple[str, str]:
    """The line before a lone `--`, and what follows it."""
    found = _SCRIPT_ARGS.search(line)
    return (line[: found.start()], line[found.end() :]) if found else (line, "")
