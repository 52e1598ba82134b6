"""Choose how the jobs of a server are kept apart, and refuse what this machine cannot do.

With ACCOUNT the system account of a job's owner is looked up here.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable

from edt_sdk.schemas.errors import EdtError, ServerUnreachable, Unprocessable
from edt_sdk.schemas.wire.control import ACCOUNT, SAME, SANDBOX, Account, Isolation
from edt_server.system import bubblewrap

KINDS = (SAME, SANDBOX, ACCOUNT)
# Accounts of people begin here (login.defs(5): UID_MIN).
FIRST_UID = 1000
AccountOf = Callable[[str], str | int | None]
OPEN = (
    "Jobs of several people run as this server's account: each can read the files of the others and of the server, and "
    "end their processes. c.EdtApp.isolation = 'sandbox' keeps them apart."
)


def isolation(
    kind: str, *, several: bool, hosts: bool, readable: Iterable[str] = (), network: bool = True
) -> Isolation:
    """Return the isolation of a server's jobs. Blocks while a sandbox is tried.

    Args:
        kind: one of `KINDS`, "" for the default: SAME for one person's server.
        several: whether several people share the server. They must have chosen.
        hosts: whether jobs may run on hosts, named ones of this machine or others.
        readable: as of `Isolation`.
        network: as of `Isolation`.

    Raises:
        ServerUnreachable: nothing was chosen where it must be, or this machine cannot do it.
    """
    if not kind and several:
        raise ServerUnreachable(
            "Several people share this server, and nothing says how their jobs are kept apart.",
            hint="Set c.EdtApp.isolation to 'sandbox', to 'account' where each has a system account, or to 'same' "
            "where all of them trust each other with their files, results and keys. docs/security.md compares them.",
        )
    if kind not in (SANDBOX, ACCOUNT):
        return Isolation()
    if kind == ACCOUNT and os.geteuid() != 0:
        raise ServerUnreachable(
            "Only root can run jobs as the accounts of their owners, and this server is not root.",
            hint="Start it as root, for example as a service of the system, or set c.EdtApp.isolation to 'sandbox'.",
        )
    if hosts and kind == ACCOUNT:
        raise ServerUnreachable(
            "Jobs on hosts cannot run as the accounts of their owners.",
            hint="Set c.EdtApp.isolation to 'sandbox', which works on hosts too, or leave c.EdtApp.local_hosts and "
            "c.EdtApp.fleet_listen empty.",
        )
    if hosts and not network:
        raise ServerUnreachable(
            "Workers on several hosts need the network, and c.EdtApp.sandbox_network takes it from them.",
            hint="Leave c.EdtApp.local_hosts and c.EdtApp.fleet_listen empty, or set c.EdtApp.sandbox_network to True.",
        )
    try:
        bubblewrap.check(users=kind == SANDBOX)
    except EdtError as why:
        raise ServerUnreachable(why.message, hint=why.hint) from why
    return Isolation(kind=kind, readable=tuple(readable), network=network)


def account_of(owner: str, named: AccountOf | None) -> Account:
    """Return the system account that the jobs of `owner` run as. Blocks.

    `named` is the server's `account_of`: it returns the name of an account, None for none, or a uid, which may also be
    the uid of an account of the system. Default: the account has the owner's name.

    Raises:
        Unprocessable: there is no such account, or no job may run as that one.
    """
    said = owner if named is None else named(owner)
    if isinstance(said, bool):
        said = None  # True would be the uid 1
    try:
        found = pwd.getpwuid(said) if isinstance(said, int) else pwd.getpwnam(said or "")
    except KeyError:
        raise Unprocessable(
            f"{owner} has no account on this server's machine, and jobs run as the accounts of their owners.",
            hint="The administrator makes the account, or names another one in c.EdtApp.account_of.",
        ) from None
    if found.pw_uid in (0, os.geteuid()) or (found.pw_uid < FIRST_UID and not isinstance(said, int)):
        raise Unprocessable(
            f"No job runs as the account {found.pw_name} ({found.pw_uid}), which is the system's and no person's.",
            hint="The administrator can give this user another account in c.EdtApp.account_of, where a uid means an "
            "account of the system too. root is never used.",
        )
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return Account(
        name=found.pw_name,
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=groups,
        home=found.pw_dir,
        shell=found.pw_shell,
    )
