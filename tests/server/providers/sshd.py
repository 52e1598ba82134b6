"""A real sshd on a loopback port. Two names lead to it, so it plays two machines."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path

from tests import debian
from tests.server.providers.engines import Engine
from tests.server.providers.ports import free_port, listens
from tests.waiting import until


class SshEngine(Engine):
    """Two machines, "Alpha" and "beta.lab"."""

    kind = "ssh"
    noticing = False

    def __init__(self, folder):
        self._sshd = debian.found(
            lambda: shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "openssh-server"
        )
        debian.found(debian.program("ssh"), "openssh-client")
        super().__init__(folder)
        self._port = free_port()
        for name in ("host", "key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, capture_output=True)
        (folder / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nPermitRootLogin prohibit-password\n"
            "MaxStartups 100\n"
        )
        (folder / "ssh_config").write_text(
            f"Host Alpha beta.lab\n  HostName 127.0.0.1\n  Port {self._port}\n  IdentityFile {folder}/key\n"
            f"  User {getpass.getuser()}\n  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking accept-new\n"
            "  IdentitiesOnly yes\n"
        )
        self._process = None
        self.heal()

    def settings(self):
        options = ["-F", str(self.folder / "ssh_config")]
        return {"hosts": ["Alpha", "beta.lab"], "options": options, "folder": str(self.folder / "there")}

    def break_(self):
        """End sshd with all of its sessions."""
        self.cut()
        self._process.kill()
        self._process.wait()
        self._process = None

    def heal(self):
        if self._process is None:
            if os.geteuid() == 0:
                Path("/run/sshd").mkdir(exist_ok=True)
            with (self.folder / "sshd.log").open("ab") as words:
                command = [self._sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")]
                self._process = subprocess.Popen(command, stdout=words, stderr=words)
            until(lambda: listens(self._port), "sshd to listen")

    def cut(self):
        """End all sessions, as when the network is gone for long."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            fields = _fields(path)
            if fields and fields[0].startswith("(sshd") and int(fields[2]) == self._process.pid:
                _kill(int(path.parent.name))

    def close(self):
        if self._process is not None:
            self.break_()


def _fields(path):
    """Return the name, the state and the parent of a process."""
    try:
        _, _, rest = path.read_text().partition(" ")
    except OSError:
        return None
    name, _, more = rest.rpartition(") ")
    return [name, *more.split()[:2]]


def _kill(pid):
    # The monitor of a session first, and then its child, which does the work.
    below = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for each in (pid, *below):
        try:
            if Path(f"/proc/{each}/comm").read_text().startswith("sshd"):
                os.kill(each, 9)
        except (OSError, ProcessLookupError):
            continue
