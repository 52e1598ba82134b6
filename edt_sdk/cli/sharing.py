"""The verbs of administrators: groups and group, resources and resource, plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from edt_sdk.cli.session import Run, Verbs, add_actions, add_options, add_verb, client, print_json, show, table
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import given
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.plan import MAX_PRIORITY, QUOTAS, InstanceGroup, PlanAsRead, ResourceGroup

# The settings of a group whose options are made from the struct. The others have a word for None.
_PLAIN = (
    *("resource_group", "parent", "policy", "preemption", "share", "own"),
    *("throughput_aware", "quantum", "max_priority"),
)


def add(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Add the verbs of this group."""
    for name, run, says in (
        ("groups", _run_groups, "List the instance groups and how they share."),
        ("resources", _run_resources, "List the resource groups."),
        ("quota", _run_quota, "Show how much of each quota is used, by you and by all users together."),
    ):
        add_verb(verbs, common, name, run, says, output="table")
    _add_actions(verbs, common, "group", "an instance group", _group_options, _run_group)
    _add_actions(verbs, common, "resource", "a resource group", _resource_options, _run_resource)
    plan = add_verb(verbs, common, "plan", _run_plan, "Print all groups as JSON, or replace them.")
    plan.add_argument(
        "--set",
        metavar="FILE",
        help="replace them by what this file says; - for stdin. A version in it: only that one",
    )


def _add_actions(
    verbs: Verbs,
    common: argparse.ArgumentParser,
    noun: str,
    what: str,
    options: Callable[[argparse.ArgumentParser], None],
    run: Run,
) -> None:
    actions = add_actions(verbs, noun, f"Create, update or delete {what}.")
    for action, told in (
        ("create", f"Add {what}."),
        ("update", f"Change {what}, at once also for jobs that run; what is not named stays."),
        ("delete", f"Remove {what} that nothing uses."),
    ):
        parser = add_verb(actions, common, action, run, told, output=None if action == "delete" else "table")
        parser.add_argument("name", metavar="NAME")
        if action != "delete":
            options(parser)


def _group_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, InstanceGroup, *_PLAIN)
    say: Callable[..., Any] = parser.add_argument
    say("--lend", type=_number_or("all"), metavar="N", help="most of its own it lends, or all (default: all)")
    say("--borrow", type=_number_or("any"), metavar="N", help="most it uses beyond its own, or any (default: any)")
    say(
        "--user-share", action="append", type=_user_share, metavar="USER=N", dest="user_shares",
        help="divide among users first, by these weights; * for everybody else; repeatable, 'none' ends it",
    )  # fmt: skip
    _quota_options(parser)
    say(
        "--pending-timeout", type=_number_or("never", float), metavar="S",
        help="a job that gets no slot for so long ends with ERROR (default: never)",
    )  # fmt: skip


def _quota_options(parser: argparse.ArgumentParser) -> None:
    for whose, of in (("max", "of all users"), ("user", "of one user")):
        for what, words in (
            ("waiting", "jobs without a slot; a submission above it is refused"),
            ("running", "jobs with slots at once; more jobs wait"),
            ("slots", "slots; the group is then divided among users first"),
            ("bytes", "bytes stored by its jobs; a submission above it is refused"),
        ):
            if f"{whose}_{what}" in QUOTAS:
                parser.add_argument(
                    f"--{whose}-{what}", type=_number_or("any"), metavar="N", help=f"quota {of}: {words} (default: any)"
                )


def _resource_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", action="append", metavar="H", dest="hosts", help="one of its hosts; repeatable")
    parser.add_argument("--rest", action="store_true", help="every host that no other resource group names")
    parser.add_argument("--slots", metavar="F", help="of each host: a number, ngpus, ncpus, or such as ncpus/2")
    parser.add_argument(
        "--portable", action=argparse.BooleanOptionalAction, default=None,
        help="its jobs use only instructions that all processors have, slower, so its hosts may differ (default: off)",
    )  # fmt: skip


def _run_groups(arguments: argparse.Namespace) -> None:
    groups = client(arguments).instance_groups()
    show(arguments, {"instance_groups": groups}, groups_table(groups))


def _run_resources(arguments: argparse.Namespace) -> None:
    groups = client(arguments).resource_groups()
    show(arguments, {"resource_groups": groups}, resources_table(groups))


def _run_quota(arguments: argparse.Namespace) -> None:
    quotas = client(arguments).quotas()
    rows = [(each.instance_group, each.quota, f"{each.used:,}", f"{each.limit:,}") for each in quotas]
    text = table(("GROUP", "QUOTA", "USED", "LIMIT"), rows) if rows else "No quotas are set."
    show(arguments, {"quotas": quotas}, text)


def _run_group(arguments: argparse.Namespace) -> None:
    server = client(arguments)
    if arguments.action == "delete":
        server.delete_instance_group(arguments.name)
        print(arguments.name)
        return
    settings = given(arguments, (*_PLAIN, *QUOTAS, "lend", "borrow", "pending_timeout"))
    settings = {name: None if value == _NO_LIMIT else value for name, value in settings.items()}
    if arguments.user_shares is not None:
        settings["user_shares"] = _users(arguments.user_shares)
    _check_given(arguments, settings)
    make = server.create_instance_group if arguments.action == "create" else server.update_instance_group
    group = make(arguments.name, **settings)
    show(arguments, group, groups_table([group]))


def _run_resource(arguments: argparse.Namespace) -> None:
    server = client(arguments)
    if arguments.action == "delete":
        server.delete_resource_group(arguments.name)
        print(arguments.name)
        return
    if arguments.rest and arguments.hosts:
        raise InvalidRequest("A resource group has the hosts that are named, or --rest: not both.", field="hosts")
    settings: dict[str, Any] = {}
    if arguments.hosts or arguments.rest:
        # An empty list is the group of all hosts that no other group names.
        settings["hosts"] = arguments.hosts or []
    if arguments.slots is not None:
        settings["slots"] = arguments.slots
    settings |= given(arguments, ("portable",))
    _check_given(arguments, settings)
    make = server.create_resource_group if arguments.action == "create" else server.update_resource_group
    group = make(arguments.name, **settings)
    show(arguments, group, resources_table([group]))


def _run_plan(arguments: argparse.Namespace) -> None:
    if arguments.set is None:
        print_json(client(arguments).plan())
        return
    try:
        if arguments.set == "-":
            text = sys.stdin.read()
        else:
            with open(arguments.set, encoding="utf-8") as file:
                text = file.read()
    except OSError as wrong:
        raise InvalidRequest(f"{arguments.set} cannot be read: {wrong.strerror}.") from None
    # The file may have the version that `edt plan` printed. The server then refuses to replace any other version.
    plan = parse_change(text, PlanAsRead)
    plan.check()
    print_json(client(arguments).set_plan(plan))


def groups_table(groups: Sequence[InstanceGroup]) -> str:
    """The groups, each below the one it is part of."""
    rows = []
    for group, depth in _tree(groups):
        rest = [name for name, on in (("throughput-aware", group.throughput_aware),) if on]
        rest += [] if group.preemption else ["no preemption"]
        rest += [] if group.pending_timeout is None else [f"waits at most {group.pending_timeout:g} s"]
        rest += [] if group.max_priority == MAX_PRIORITY else [f"priority at most {group.max_priority}"]
        rest += [f"{field} {quota}" for field in QUOTAS if (quota := getattr(group, field)) is not None]
        users = "-" if group.user_shares is None else ",".join(f"{user}={n}" for user, n in group.user_shares.items())
        rows.append(
            (
                "  " * depth + group.name,
                group.resource_group,
                group.policy,
                group.share,
                group.own,
                "all" if group.lend is None else group.lend,
                "any" if group.borrow is None else group.borrow,
                users or "-",
                ", ".join(rest) or "-",
            )
        )
    return table(("GROUP", "RESOURCES", "POLICY", "SHARE", "OWN", "LEND", "BORROW", "USERS", "ALSO"), rows)


def resources_table(groups: Sequence[ResourceGroup]) -> str:
    """The resource groups."""
    others = "(all others)"
    rows = [
        (group.name, (group.slots or "as found") + ", portable" * group.portable, ", ".join(group.hosts) or others)
        for group in groups
    ]
    return table(("RESOURCES", "SLOTS OF A HOST", "HOSTS"), rows)


def _tree(groups: Sequence[InstanceGroup], parent: str = "", depth: int = 0) -> list[tuple[InstanceGroup, int]]:
    names = {group.name for group in groups}
    found: list[tuple[InstanceGroup, int]] = []
    for group in groups:
        # A list of one changed group lacks its parent. It is shown as a root.
        if group.parent == parent or (not parent and group.parent not in names):
            found += [(group, depth), *_tree(groups, group.name, depth + 1)]
    return found


def _check_given(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    if arguments.action == "update" and not settings:
        raise InvalidRequest("Nothing to change.", hint="Name what is to be another.")


# Not None: argparse leaves None where the option was not given.
_NO_LIMIT = "no limit"


def _number_or(word: str, kind: type[int] | type[float] = int) -> Callable[[str], float | str]:
    def number(text: str) -> float | str:
        return _NO_LIMIT if text == word else kind(text)

    number.__name__ = f"number or {word!r}"  # argparse's message names it
    return number


def _user_share(text: str) -> tuple[str, int] | None:
    if text == "none":
        return None
    # From the right, because a user's name may contain an equals sign.
    user, sign, share = text.rpartition("=")
    if not user or not sign or not share.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not USER=NUMBER")
    return user, int(share)


def _users(named: Sequence[tuple[str, int] | None]) -> dict[str, int] | None:
    return None if None in named else dict(pair for pair in named if pair is not None)
