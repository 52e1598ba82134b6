"""Programs that make samples of their own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import edt_sdk.elastic as edt
from tests.training.elastic.programs.loop import SEED, Anneal, Program, batches, numbers, updates


def critic_and_generator(plain: bool) -> Program:
    """A GAN whose noise is part of the data: two optimizers that step in turn."""
    data = TensorDataset(numbers(40, 6), numbers(40, 4, seed=7))
    generator = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 6))
    critic = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    opt_g = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.99))
    opt_c = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.99))

    def judged(x: Tensor, real: float) -> Tensor:
        return F.binary_cross_entropy_with_logits(critic(x), torch.full((len(x), 1), real))

    if plain:
        for real, noise in batches(data):
            opt_c.zero_grad()
            (judged(real, 1.0) + judged(generator(noise).detach(), 0.0)).backward()
            opt_c.step()
            opt_g.zero_grad()
            judged(generator(noise), 1.0).backward()
            opt_g.step()
            yield ()
    else:
        run = edt.elastic(generator=generator, critic=critic, opt_g=opt_g, opt_c=opt_c, seed=SEED)
        for update in updates(run, data):
            for real, noise in update:
                update.backward(judged(real, 1.0) + judged(generator(noise).detach(), 0.0))
            update.step(opt_c)
            for _, noise in update:
                update.backward(judged(generator(noise), 1.0))
            update.step(opt_g)
            yield ()
    yield (generator, critic)


def diffusion(plain: bool) -> Program:
    """DDPM: a step and noise are drawn for each sample."""
    data = TensorDataset(numbers(40, 6))
    net = nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 6))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    kept = torch.linspace(0.99, 0.1, 10)

    def loss_of(x: Tensor) -> Tensor:
        step, noise = torch.randint(0, 10, (len(x), 1)), torch.randn_like(x)
        mixed = kept[step].sqrt() * x + (1 - kept[step]).sqrt() * noise
        return F.mse_loss(net(torch.cat([mixed, step / 10], 1)), noise)

    if plain:
        for (x,) in batches(data):
            opt.zero_grad()
            loss_of(x).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for (x,) in update:
                update.backward(loss_of(x))
            update.step(clip=1.0)
            yield ()
    yield (net,)


def autoencoder(plain: bool) -> Program:
    """A VAE whose KL term is annealed, with mixup in its collate function."""
    data = TensorDataset(numbers(40, 6))
    encoder, decoder, anneal = nn.Linear(6, 4), nn.Linear(2, 6), Anneal()
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)

    def mixed(items: list[Any]) -> Tensor:
        x = torch.stack([item[0] for item in items])
        return torch.lerp(x, x.flip(0), float(torch.rand(())))

    def loss_of(x: Tensor) -> Tensor:
        mean, spread = encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        divergence = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1).mean()
        return F.mse_loss(decoder(z), x) + anneal.weight * divergence

    if plain:
        for x in batches(data, collate=mixed):
            opt.zero_grad()
            loss_of(x).backward()
            opt.step()
            anneal.step()
            yield ()
    else:
        run = edt.elastic(encoder=encoder, decoder=decoder, opt=opt, anneal=anneal, seed=SEED)
        for update in updates(run, data, collate=mixed):
            for x in update:
                update.backward(loss_of(x))
            update.step()
            anneal.step()
            yield ()
    yield (encoder, decoder)


def gradient_penalty(plain: bool) -> Program:
    """WGAN-GP: a second derivative, and a generator that steps at every third update."""
    data = TensorDataset(numbers(40, 6), numbers(40, 4, seed=7), numbers(40, 1, seed=8).sigmoid())
    generator = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 6))
    critic = nn.Sequential(nn.Linear(6, 12), nn.Softplus(), nn.Linear(12, 1))
    opt_g = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.0, 0.9))

    def loss_of(real: Tensor, noise: Tensor, share: Tensor) -> Tensor:
        made = generator(noise).detach()
        between = torch.lerp(made, real, share).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        return critic(made).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()

    if plain:
        for number, (real, noise, share) in enumerate(batches(data)):
            opt_c.zero_grad()
            loss_of(real, noise, share).backward()
            opt_c.step()
            if number % 3 == 2:
                opt_g.zero_grad()
                (-critic(generator(noise)).mean()).backward()
                opt_g.step()
            yield ()
    else:
        run = edt.elastic(generator=generator, critic=critic, opt_g=opt_g, opt_c=opt_c, seed=SEED)
        for update in updates(run, data):
            for real, noise, share in update:
                update.backward(loss_of(real, noise, share))
            update.step(opt_c)
            if update.number % 3 == 2:
                for _, noise, _ in update:
                    update.backward(-critic(generator(noise)).mean())
                update.step(opt_g)
            yield ()
    yield (generator, critic)
