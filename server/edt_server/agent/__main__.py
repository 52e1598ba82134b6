"""Run `python -m edt_server.agent <file with AgentOrders> <lock>`, or `… join …`, which makes a host of a machine.

What the agent starts runs with the arguments `below <pid of the agent> <program> …` instead.
"""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    """Run an agent, its guard, or a supervisor or outpost below an agent."""
    from edt_server.agent.guard import die_with, guarded

    match argv[1:]:
        case ["below", parent, "supervisor", *rest]:
            die_with(int(parent))
            from edt_server.supervisor.starting import main as supervise

            return supervise(["supervisor", *rest])
        case ["below", parent, "outpost", *rest]:
            die_with(int(parent))
            from edt_server.agent import outpost

            return outpost.main(rest)
        case ["join", *rest]:
            from edt_server.agent import join

            joined = join.main(rest)
            if isinstance(joined, int):
                return joined
            argv = [argv[0], *joined]
    # The guard is forked before large modules are imported, so that it stays small.
    _, orders, lock = argv
    if guarded(lock):
        return 0
    from edt_server.agent import host

    return host.main(orders)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
