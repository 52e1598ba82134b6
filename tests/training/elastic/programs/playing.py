"""Programs whose data are what they do."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import edt_sdk.elastic as edt
from tests.training.elastic.programs.loop import BATCH, EPOCHS, SEED, SHARDS, Program


def actor_and_critic(plain: bool) -> Program:
    """The policy plays once an epoch, in one worker, and all learn from that."""
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    opt_a = torch.optim.Adam(actor.parameters(), lr=0.02)
    opt_c = torch.optim.Adam(critic.parameters(), lr=0.02)

    @torch.no_grad()
    def play() -> tuple[Tensor, ...]:
        state, rows = torch.zeros(8, 4), []
        for _ in range(5):
            action = torch.distributions.Categorical(logits=actor(state)).sample()
            after = 0.8 * state + 0.3 * torch.randn(8, 4) + (action[:, None] - 0.5)
            rows.append((state, action, -after.square().sum(1)))
            state = after
        return tuple(torch.cat(each) for each in zip(*rows, strict=True))

    def losses_of(state: Tensor, action: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        advantage = reward - critic(state).squeeze(1)
        chosen = torch.distributions.Categorical(logits=actor(state)).log_prob(action)
        return advantage.square().mean(), -(chosen * advantage.detach()).mean()

    if plain:
        for _ in range(EPOCHS):
            games = TensorDataset(*play())
            for batch in DataLoader(games, BATCH, shuffle=True):
                opt_a.zero_grad()
                opt_c.zero_grad()
                of_critic, of_actor = losses_of(*batch)
                of_critic.backward()
                of_actor.backward()
                opt_a.step()
                opt_c.step()
                yield ()
    else:
        run = edt.elastic(actor=actor, critic=critic, opt_a=opt_a, opt_c=opt_c, seed=SEED)
        for _ in run.epochs(EPOCHS):
            games = TensorDataset(*run.once(play))
            for update in run.updates(games, batch=BATCH, shards=SHARDS):
                for batch in update:
                    of_critic, of_actor = losses_of(*batch)
                    update.backward(of_critic)
                    update.backward(of_actor)
                update.step(opt_a, opt_c)
                yield ()
    yield (actor, critic)


class Replay:
    """The newest transitions, as a data set that grows."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: list[tuple[Tensor, ...]] = []

    def add(self, transitions: tuple[Tensor, ...]) -> None:
        self.rows = [*self.rows, *zip(*transitions, strict=True)][-self.most :]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.rows[index]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = state["rows"]


def deep_q(plain: bool) -> Program:
    """DQN: a replay buffer that grows, a target network, and an exploration that falls."""
    net, target = nn.Linear(4, 2), nn.Linear(4, 2)
    target.load_state_dict(net.state_dict())
    target.requires_grad_(False)
    opt, replay = torch.optim.Adam(net.parameters(), lr=0.02), Replay(50)

    @torch.no_grad()
    def play(explore: float) -> tuple[Tensor, ...]:
        state, rows = torch.zeros(4, 4), []
        for _ in range(4):
            action = torch.where(torch.rand(4) < explore, torch.randint(0, 2, (4,)), net(state).argmax(1))
            after = 0.8 * state + 0.3 * torch.randn(4, 4) + (action[:, None] - 0.5)
            rows.append((state, action, -after.square().sum(1), after))
            state = after
        return tuple(torch.cat(each) for each in zip(*rows, strict=True))

    def loss_of(state: Tensor, action: Tensor, reward: Tensor, after: Tensor) -> Tensor:
        wanted = reward + 0.9 * target(after).max(1).values
        return F.smooth_l1_loss(net(state).gather(1, action[:, None]).squeeze(1), wanted)

    if plain:
        for episode in range(6):
            replay.add(play(1 / (1 + episode)))
            for _, batch in zip(range(2), DataLoader(replay, BATCH, shuffle=True), strict=False):
                opt.zero_grad()
                loss_of(*batch).backward()
                opt.step()
                yield ()
            if episode % 2:
                target.load_state_dict(net.state_dict())
    else:
        run = edt.elastic(model=net, target=target, opt=opt, replay=replay, seed=SEED)
        for episode in run.epochs(6):
            replay.add(run.once(play, 1 / (1 + episode)))
            for update in run.updates(replay, batch=BATCH, shards=SHARDS, steps=2):
                for batch in update:
                    update.backward(loss_of(*batch))
                update.step()
                yield ()
            if episode % 2:
                target.load_state_dict(net.state_dict())
    yield (net, target)
