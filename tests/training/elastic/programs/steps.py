"""Programs with losses, optimizers or steps of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import edt_sdk.elastic as edt
from tests.training.elastic.programs.loop import SEED, Anneal, Program, batches, numbers, updates, whole


def two_tasks(plain: bool) -> Program:
    """One body, two heads and two losses, of which one is annealed by a schedule of the program's own."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3), numbers(40, 2, seed=4))
    body, one, two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    models = {"body": body, "one": one, "two": two}
    opt = torch.optim.SGD([p for model in models.values() for p in model.parameters()], lr=0.1, momentum=0.9)
    anneal = Anneal()

    def loss_of(x: Tensor, label: Tensor, target: Tensor) -> Tensor:
        hidden = torch.tanh(body(x))
        return F.cross_entropy(one(hidden), label) + anneal.weight * F.mse_loss(two(hidden), target)

    if plain:
        for batch in batches(data):
            opt.zero_grad()
            loss_of(*batch).backward()
            opt.step()
            anneal.step()
            yield ()
    else:
        run = edt.elastic(**models, opt=opt, anneal=anneal, seed=SEED)
        for update in updates(run, data):
            for batch in update:
                update.backward(loss_of(*batch))
            update.step()
            anneal.step()
            yield ()
    yield (body, one, two)


def muon_and_adamw(plain: bool) -> Program:
    """Matrices by Muon, the rest by AdamW, each with a schedule."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    muon = torch.optim.Muon([net[0].weight, net[3].weight], lr=0.02)
    adamw = torch.optim.AdamW([p for p in net.parameters() if p.ndim < 2], lr=0.01)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(muon, 12)
    if plain:
        for x, y in batches(data):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            muon.step()
            adamw.step()
            cosine.step()
            yield ()
    else:
        run = edt.elastic(model=net, muon=muon, adamw=adamw, cosine=cosine, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step(muon, adamw, clip=1.0)
            cosine.step()
            yield ()
    yield (net,)


def low_rank(plain: bool) -> Program:
    """LoRA: a frozen layer, and two small trained ones beside it."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    base, down, up = nn.Linear(6, 3), nn.Linear(6, 2, bias=False), nn.Linear(2, 3, bias=False)
    base.requires_grad_(False)
    nn.init.zeros_(up.weight)
    opt = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=0.05)
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(base(x) + up(down(x)), y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(base=base, down=down, up=up, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(base(x) + up(down(x)), y))
            update.step()
            yield ()
    yield (base, down, up)


def half_precision(plain: bool) -> Program:
    """Autocast and a scaler whose scale is far too large at first."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    opt, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**30)
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, scaler=scaler, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(net(x).float(), y)
                update.backward(loss, scaler=scaler)
            update.step(scaler=scaler)
            yield ()
    yield (net,)


def mixture_of_experts(plain: bool) -> Program:
    """Experts of which a part of a batch may use none, kept busy by a bias that counts over the whole batch."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    gate, experts = nn.Linear(6, 6), nn.ModuleList(nn.Linear(6, 3) for _ in range(6))
    gate.register_buffer("favour", torch.zeros(6))
    opt = torch.optim.AdamW([*gate.parameters(), *experts.parameters()], lr=0.02)

    def loss_of(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = gate(x)
        chosen = (logits + gate.favour).argmax(1)
        share = logits.softmax(1).gather(1, chosen[:, None])
        outputs = torch.zeros(len(x), 3)
        for number, expert in enumerate(experts):
            if (mine := chosen == number).any():
                outputs = outputs.index_put((mine,), share[mine] * expert(x[mine]))
        size = logits.logsumexp(1).square().mean()
        return F.cross_entropy(outputs, y) + 0.01 * size, F.one_hot(chosen, 6)

    def balance(chosen: Tensor) -> None:
        used = chosen.float().mean(0)
        gate.favour += 0.1 * (used.mean() - used).sign()

    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            loss, chosen = loss_of(x, y)
            loss.backward()
            opt.step()
            balance(chosen)
            yield ()
    else:
        run = edt.elastic(gate=gate, experts=experts, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                loss, chosen = loss_of(x, y)
                update.keep("chosen", chosen)
                update.backward(loss)
            update.step()
            balance(update.kept("chosen"))
            yield ()
    yield (gate, experts)


class SharpnessAware(torch.optim.Optimizer):
    """SAM: the gradients of a step are those at the worst place nearby."""

    def __init__(self, parameters: Iterable[Tensor], base: type[torch.optim.Optimizer], **options: Any) -> None:
        super().__init__(parameters, {"rho": 0.05, **options})
        self.base = base(self.param_groups, **options)

    @torch.no_grad()
    def climb(self) -> None:
        """Go to the worst place nearby."""
        trained = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in trained]).norm()
        for p in trained:
            self.state[p]["before"] = p.clone()
            p += p.grad * 0.05 / (norm + 1e-12)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Go back, and make the step."""
        for p, state in self.state.items():
            p.copy_(state["before"])
        self.base.step()


def sharpness_aware(plain: bool) -> Program:
    """SAM: two passes over a batch for a step, with other weights in the second."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    opt = SharpnessAware(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.climb()
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            opt.climb()
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step()
            yield ()
    yield (net,)


def gradual_unfreezing(plain: bool) -> Program:
    """Linear probing, then the layers below it one after the other, with smaller rates."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    groups = [{"params": net[number].parameters(), "lr": rate} for number, rate in ((4, 0.1), (2, 0.03), (0, 0.01))]
    opt = torch.optim.SGD(groups, momentum=0.9, weight_decay=0.01)

    def thaw(number: int) -> None:
        net[0].requires_grad_(number >= 7)
        net[2].requires_grad_(number >= 4)

    if plain:
        for number, (x, y) in enumerate(batches(data)):
            thaw(number)
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            thaw(update.number)
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step()
            yield ()
    yield (net,)


def physics(plain: bool) -> Program:
    """A PINN: u'' = −u with u(0) = 0 and u(1) = 1, by second derivatives of the network."""
    data = TensorDataset(numbers(40, 1).sigmoid())
    net = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)).double()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    ends, values = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double()

    def loss_of(x: Tensor) -> Tensor:
        x = x.double().requires_grad_()
        u = net(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return (second + u).square().mean() + F.mse_loss(net(ends), values)

    if plain:
        for (x,) in batches(data):
            opt.zero_grad()
            loss_of(x).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for (x,) in update:
                update.backward(loss_of(x))
            update.step()
            yield ()
    yield (net,)


def graph_network(plain: bool) -> Program:
    """A graph network over all nodes, trained on those with a label."""
    near = (numbers(60, 60, seed=4) + numbers(60, 60, seed=4).T > 2.5).float() + torch.eye(60)
    spread = near / near.sum(1, keepdim=True)
    features, data = numbers(60, 6), TensorDataset(torch.randperm(60)[:40], whole(40, below=3))
    one, two = nn.Linear(6, 8), nn.Linear(8, 3)
    opt = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=0.02, weight_decay=5e-4)

    def outputs(nodes: Tensor) -> Tensor:
        return (spread @ two(torch.relu(spread @ one(features))))[nodes]

    if plain:
        for nodes, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(outputs(nodes), y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(one=one, two=two, opt=opt, seed=SEED)
        for update in updates(run, data):
            for nodes, y in update:
                update.backward(F.cross_entropy(outputs(nodes), y))
            update.step()
            yield ()
    yield (one, two)
