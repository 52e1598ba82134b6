"""The server of the random world: it is always a bit behind, and gives and takes slots as it likes."""

from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import Acknowledged, Allocated

SLOTS = range(4)
EPOCHS = 3


class WorldOfSlots:
    """The part of `World` that does what a server does."""

    def level(self):
        self.version += 1
        slots = tuple(Slot(id=slot, host="h") for slot in sorted(self.held))
        self.to_supervisor.append(Allocated(self.version, slots, len(SLOTS) if self.demand else 0, self.budget))

    def raise_budget(self):
        self.budget = None if self.budget == EPOCHS - 1 else self.budget + 1
        self.level()

    def grant(self, slot):
        self.held.add(slot)
        self.level()

    def revoke(self, *slots):
        self.held -= set(slots)
        self.leaving |= set(slots)
        self.level()

    def take_report(self):
        number, report = self.to_server.popleft()
        match report:
            case control.SlotReturned(slot=slot):
                assert slot in self.held | self.leaving, "released twice"
                kept = slot in self.held
                self.held.discard(slot)
                self.leaving.discard(slot)
            case control.TrainingStarted():
                self.demand = True
            case control.BudgetReached(epoch=epoch) if self.budget is not None and self.budget <= epoch:
                if self.held:
                    self.revoke(*self.held)
            case control.TrainingEnded():
                self.demand = False
                self.leaving |= self.held
                self.held = set()
            case control.JobEnded():
                self.held, self.leaving, self.demand = set(), set(), False
        self.to_supervisor.append(Acknowledged(number))
        if isinstance(report, control.TrainingEnded) or (isinstance(report, control.SlotReturned) and kept):
            self.level()

    def server_actions(self):
        if self.demand:
            free = [slot for slot in SLOTS if slot not in self.held | self.leaving]
            yield from (lambda slot=slot: self.grant(slot) for slot in free)
        yield from (lambda slot=slot: self.revoke(slot) for slot in self.held)
        if self.held:
            yield lambda: self.revoke(*self.held)
        if self.budget is not None:
            yield self.raise_budget
