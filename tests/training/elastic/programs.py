"""Real programs with loops of their own: each as its ecosystem writes it, and as it is with `edt_sdk.elastic`.

Run by tests as the main script of a job, and alone: `programs.py FOLDER NAME [plain]`. A program is a generator that
yields after each update, so that tests can hold it there, and its models at the end.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import edt_sdk.elastic as edt
from edt_sdk.training.sampling.order import Order

SEED, BATCH, SHARDS, EPOCHS = 3, 12, 4, 3
Program = Iterator[tuple[nn.Module, ...]]


def batches(data: Any, *, collate: Callable[[list[Any]], Any] = torch.utils.data.default_collate) -> Iterator[Any]:
    """The batches of a plain loop, in the order of the engine."""
    order = Order(len(data), (BATCH,), BATCH, SEED, EPOCHS)
    for epoch in range(EPOCHS):
        for update in range(order.updates_per_epoch):
            yield collate([data[index] for index in order.shards(epoch, update)[0].tolist()])


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(*shape: int, below: int, seed: int = 2) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def updates(run: edt.ElasticRun, data: Any, **options: Any) -> Iterator[edt.Update]:
    for _ in run.epochs(EPOCHS):
        yield from run.updates(data, batch=BATCH, shards=SHARDS, **options)


# --- programs ---------------------------------------------------------------------------------------------------------


def language_model(plain: bool) -> Program:
    """A causal language model with padding: its loss is a mean over the tokens of the whole batch."""
    tokens = whole(40, 9, below=17)
    lengths = whole(40, below=7) + 2
    labels = torch.where(torch.arange(8) < lengths[:, None], tokens[:, 1:], -100)
    data = TensorDataset(tokens[:, :-1], labels)
    net = nn.Sequential(nn.Embedding(17, 12), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 17))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(net(x).flatten(0, 1), y.flatten()), weight=(y != -100).sum())
            update.step()
            yield ()
    yield (net,)


def two_tasks(plain: bool) -> Program:
    """One body, two heads and two losses, of which one is annealed by a schedule of the program's own."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3), numbers(40, 2, seed=4))
    body, one, two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    models = {"body": body, "one": one, "two": two}
    opt = torch.optim.SGD([p for model in models.values() for p in model.parameters()], lr=0.1, momentum=0.9)
    anneal = Anneal()
    run = None if plain else edt.elastic(**models, opt=opt, anneal=anneal, seed=SEED)
    if run is None:
        for x, label, target in batches(data):
            opt.zero_grad()
            hidden = torch.tanh(body(x))
            (F.cross_entropy(one(hidden), label) + anneal.weight * F.mse_loss(two(hidden), target)).backward()
            opt.step()
            anneal.step()
            yield ()
    else:
        for update in updates(run, data):
            for x, label, target in update:
                hidden = torch.tanh(body(x))
                update.backward(F.cross_entropy(one(hidden), label) + anneal.weight * F.mse_loss(two(hidden), target))
            update.step()
            anneal.step()
            yield ()
    yield (body, one, two)


class Anneal:
    """A weight that grows with each update."""

    def __init__(self) -> None:
        self.weight = 0.0

    def step(self) -> None:
        self.weight = min(1.0, self.weight + 0.1)

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]


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


def average_of_weights(plain: bool) -> Program:
    """An EMA of the weights, and a warm-up and cosine by update."""
    data = TensorDataset(numbers(40, 1, 6, 6), whole(40, below=3))
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    warm_up = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    rates = torch.optim.lr_scheduler.SequentialLR(opt, [warm_up, cosine], [4])
    ema = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            rates.step()
            ema.update_parameters(net)
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, rates=rates, ema=ema, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y))
            update.step()
            rates.step()
            ema.update_parameters(net)
            yield ()
    yield (net, ema)


def packed_lstm(plain: bool) -> Program:
    """Sequences of different lengths, packed by a collate function of the program's own."""
    lengths = (whole(40, below=6) + 2).tolist()
    data = [(numbers(length, 5, seed=n), n % 3) for n, length in enumerate(lengths)]

    def pack(items: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
        sequences, labels = zip(*items, strict=True)
        sizes = torch.tensor([len(each) for each in sequences])
        return nn.utils.rnn.pad_sequence(list(sequences), batch_first=True), sizes, torch.tensor(labels)

    lstm, head = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 3)
    opt = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.02)

    def loss_of(x: Tensor, sizes: Tensor, y: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, sizes, batch_first=True, enforce_sorted=False)
        return F.cross_entropy(head(lstm(packed)[1][0][-1]), y)

    if plain:
        for x, sizes, y in batches(data, collate=pack):
            opt.zero_grad()
            loss_of(x, sizes, y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(lstm=lstm, head=head, opt=opt, seed=SEED)
        for update in updates(run, data, collate=pack):
            for x, sizes, y in update:
                update.backward(loss_of(x, sizes, y))
            update.step()
            yield ()
    yield (lstm, head)


def word_vectors(plain: bool) -> Program:
    """word2vec: sparse gradients, and an optimizer for them."""
    data = TensorDataset(whole(60, below=30), whole(60, below=30, seed=5), whole(60, 3, below=30, seed=6))
    words, contexts = nn.Embedding(30, 8, sparse=True), nn.Embedding(30, 8, sparse=True)
    opt = torch.optim.SparseAdam([*words.parameters(), *contexts.parameters()], lr=0.05)

    def loss_of(word: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        near = (words(word) * contexts(context)).sum(1)
        far = (words(word)[:, None] * contexts(noise)).sum(2)
        return -F.logsigmoid(near).mean() - F.logsigmoid(-far).mean()

    if plain:
        for batch in batches(data):
            opt.zero_grad()
            loss_of(*batch).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(words=words, contexts=contexts, opt=opt, seed=SEED)
        for update in updates(run, data):
            for batch in update:
                update.backward(loss_of(*batch))
            update.step()
            yield ()
    yield (words, contexts)


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


def contrast(plain: bool) -> Program:
    """MoCo: a slow copy of the encoder, and a queue of its features over batches."""
    data = TensorDataset(numbers(40, 6), numbers(40, 6, seed=8))
    net, slow = nn.Linear(6, 5), nn.Linear(6, 5)
    slow.load_state_dict(net.state_dict())
    slow.requires_grad_(False)
    slow.register_buffer("queue", F.normalize(numbers(24, 5, seed=9), dim=1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss_of(x: Tensor, keys: Tensor) -> Tensor:
        query = F.normalize(net(x), dim=1)
        logits = torch.cat([(query * keys).sum(1, keepdim=True), query @ slow.queue.T], 1) / 0.2
        return F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))

    @torch.no_grad()
    def follow(keys: Tensor) -> None:
        for own, other in zip(slow.parameters(), net.parameters(), strict=True):
            own.lerp_(other, 0.1)
        slow.queue.copy_(torch.cat([keys, slow.queue])[:24])

    if plain:
        for x, other in batches(data):
            opt.zero_grad()
            keys = F.normalize(slow(other), dim=1)
            loss_of(x, keys).backward()
            opt.step()
            follow(keys)
            yield ()
    else:
        run = edt.elastic(model=net, slow=slow, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, other in update:
                keys = update.keep("keys", F.normalize(slow(other), dim=1))
                update.backward(loss_of(x, keys))
            update.step()
            follow(update.kept("keys"))
            yield ()
    yield (net, slow)


def segmentation(plain: bool) -> Program:
    """A loss over pixels, of which some are ignored."""
    labels = torch.where(numbers(40, 6, 6, seed=3) > 1, 255, whole(40, 6, 6, below=3))
    data = TensorDataset(numbers(40, 2, 6, 6), labels)
    net = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 3, 1))
    opt = torch.optim.RMSprop(net.parameters(), lr=0.005)
    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            F.cross_entropy(net(x), y, ignore_index=255).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(net(x), y, ignore_index=255), weight=(y != 255).sum())
            update.step()
            yield ()
    yield (net,)


# Those that draw in the forward pass have no plain loop with the same draws: they are compared with themselves.


def diffusion(plain: bool) -> Program:
    """DDPM: a step and noise are drawn for each sample."""
    data = TensorDataset(numbers(40, 6))
    net = nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 6))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    kept = torch.linspace(0.99, 0.1, 10)
    run = edt.elastic(model=net, opt=opt, seed=SEED)
    for update in updates(run, data):
        for (x,) in update:
            step = torch.randint(0, 10, (len(x), 1))
            noise = torch.randn_like(x)
            mixed = kept[step].sqrt() * x + (1 - kept[step]).sqrt() * noise
            update.backward(F.mse_loss(net(torch.cat([mixed, step / 10], 1)), noise))
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

    run = edt.elastic(encoder=encoder, decoder=decoder, opt=opt, anneal=anneal, seed=SEED)
    for update in updates(run, data, collate=mixed):
        for x in update:
            mean, spread = encoder(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
            divergence = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1).mean()
            update.backward(F.mse_loss(decoder(z), x) + anneal.weight * divergence)
        update.step()
        anneal.step()
        yield ()
    yield (encoder, decoder)


def actor_and_critic(plain: bool) -> Program:
    """The policy plays once an epoch, in one worker, and all learn from that."""
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    opt_a = torch.optim.Adam(actor.parameters(), lr=0.02)
    opt_c = torch.optim.Adam(critic.parameters(), lr=0.02)
    run = edt.elastic(actor=actor, critic=critic, opt_a=opt_a, opt_c=opt_c, seed=SEED)

    @torch.no_grad()
    def play() -> tuple[Tensor, ...]:
        state, rows = torch.zeros(8, 4), []
        for _ in range(5):
            action = torch.distributions.Categorical(logits=actor(state)).sample()
            after = 0.8 * state + 0.3 * torch.randn(8, 4) + (action[:, None] - 0.5)
            rows.append((state, action, -after.square().sum(1)))
            state = after
        return tuple(torch.cat(each) for each in zip(*rows, strict=True))

    for _ in run.epochs(EPOCHS):
        games = TensorDataset(*run.once(play))
        for update in run.updates(games, batch=BATCH, shards=SHARDS):
            for state, action, reward in update:
                advantage = reward - critic(state).squeeze(1)
                chosen = torch.distributions.Categorical(logits=actor(state)).log_prob(action)
                update.backward(advantage.square().mean())
                update.backward(-(chosen * advantage.detach()).mean())
            update.step(opt_a, opt_c)
            yield ()
    yield (actor, critic)


def half_precision(plain: bool) -> Program:
    """Autocast and a scaler whose scale is far too large at first."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    opt, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**30)
    run = edt.elastic(model=net, opt=opt, scaler=scaler, seed=SEED)
    for update in updates(run, data):
        for x, y in update:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x).float(), y)
            update.backward(loss, scaler=scaler)
        update.step(scaler=scaler)
        yield ()
    yield (net,)


EQUAL = (
    language_model, two_tasks, muon_and_adamw, low_rank, average_of_weights, packed_lstm, word_vectors,
    critic_and_generator, contrast, segmentation,
)  # fmt: skip
DRAWING = (diffusion, autoencoder, actor_and_critic, half_precision)
PROGRAMS: dict[str, Callable[[bool], Program]] = {each.__name__: each for each in (*EQUAL, *DRAWING)}


def begin(name: str, *, plain: bool = False) -> Program:
    torch.set_num_threads(1)
    torch.manual_seed(11)
    return PROGRAMS[name](plain)


def hash_of(models: tuple[nn.Module, ...]) -> str:
    digest = hashlib.sha256()
    for model in models:
        for tensor in model.state_dict().values():
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def main(folder: Path, name: str) -> None:
    """Run a program, and wait after an update while the file `hold-<number>` is there."""
    program = begin(name)
    for number, found in enumerate(program):
        models = found
        (folder / f"at-{os.getpid()}").write_text(str(number))
        deadline = time.monotonic() + 180
        while (folder / f"hold-{number}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    (folder / f"end-{os.getpid()}").write_text(hash_of(models))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
