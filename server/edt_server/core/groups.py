"""Instance groups: named queues over the resource group.

In this release all groups draw on the one resource group and their jobs compete as in one queue, by priority; shares
of their own, ownership and lending come with the scheduler's own release. What is not built is refused here, at the
configuration, and not when the first job meets it.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.errors import NotBuiltYet, Unprocessable

BUILT_POLICIES = ("fairshare",)
KNOWN_POLICIES = ("fairshare", "priority", "fifo")


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """One queue.

    Attributes:
        name: what jobs call it.
        policy: "fairshare": weight = priority, Webster's divisor rule.
        preemption: slots above a job's entitlement are taken back at the next update, not when the job ends.

    Raises:
        NotBuiltYet: policy "priority" or "fifo", or preemption off.
        Unprocessable: no such policy, or no name.
    """

    name: str
    policy: str = "fairshare"
    preemption: bool = True

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise Unprocessable("An instance group needs a name.", field="name")
        if self.policy not in KNOWN_POLICIES:
            raise Unprocessable(
                f"There is no policy {self.policy!r}.",
                hint=f"Choose one of {', '.join(BUILT_POLICIES)}.",
                field="policy",
            )
        if self.policy not in BUILT_POLICIES:
            raise NotBuiltYet(
                f"Policy {self.policy!r} is not built yet.", hint="Use policy 'fairshare', the default.", field="policy"
            )
        if not self.preemption:
            raise NotBuiltYet(
                "Instance groups without preemption are not built yet.",
                hint="Leave preemption on, the default.",
                field="preemption",
            )
