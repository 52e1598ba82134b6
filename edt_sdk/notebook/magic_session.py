"""Keep the state that a notebook's magics share: a client, the jobs seen so far, and the last used job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from edt_sdk.notebook.completion import JobNames
from edt_sdk.schemas.errors import EdtError, NotAllowed, ServerUnreachable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from edt_sdk.client import Client, Job


class MagicSession:
    """The state behind the magics.

    Args:
        shell: the shell. Its variables may hold jobs.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self.names = JobNames()
        self.client: Client | None = None
        self._last: str | None = None

    def run(self, work: Callable[[Client], Any]) -> Any:
        """Run `work` with the client. A refusal becomes one line, and a lost server is searched for again."""
        try:
            if self.client is None:
                from edt_sdk.client import Client

                self.client = Client()
            return work(self.client)
        except EdtError as refused:
            if isinstance(refused, ServerUnreachable | NotAllowed):
                self.client = None  # it may have another port or token by now
            raise UsageError(str(refused)) from None

    def job(self, name: str | None, *, seen: bool = True) -> Job:
        """Return the job with this id, or of the variable with this name. Without a name, return the last job used.

        `seen=False` makes no request for an id: the next request finds out whether there is such a job.
        """
        from edt_sdk.client import Job

        found = self.named(name) if name else self._last
        if found is None:
            raise UsageError("Which job? Give its id; %edt_jobs lists them.")
        if not isinstance(found, str):
            return self.touched(found)
        return self.touched(self.run(lambda client: client.job(found) if seen else Job(client.connection, found)))

    def given(self, magic: Callable[..., Any], name: str | None) -> Job:
        """Return the job with this name, without a request and without a default."""
        if not name:
            raise UsageError(f"%{magic.__name__} needs the id of a job.")
        return self.job(name, seen=False)

    def named(self, name: str) -> Job | str:
        """Return the job or id in the variable of this name, else the name itself as an id."""
        from edt_sdk.client import Job

        held = self._shell.user_ns.get(name)
        return held if isinstance(held, Job | str) else name

    def touched(self, job: Job) -> Job:
        """Remember the job as the last one."""
        self._last = job.id
        self.names.remember([job.id])
        return job

    # --- for completion, without a request ----------------------------------------------------------------------------

    def jobs(self) -> list[str]:
        """Return the words that may name a job: variables that hold one, then ids seen so far."""
        from edt_sdk.client import Job

        # IPython keeps outputs in variables such as _ and _3, which would clutter the completion.
        variables = [name for name, value in self._shell.user_ns.items() if isinstance(value, Job) and name[0] != "_"]
        return [*variables, *self.names]

    def groups(self) -> list[str]:
        """Return the instance groups that the server has named, none before the first request."""
        return [] if self.client is None else list(self.client.info.instance_groups)
