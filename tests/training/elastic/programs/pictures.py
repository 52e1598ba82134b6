"""Programs over pictures, and over features of them."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import edt_sdk.elastic as edt
from tests.training.elastic.programs.loop import SECOND, SEED, Program, batches, numbers, updates, whole


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


def distillation(plain: bool) -> Program:
    """A student of a frozen teacher, whose BatchNorm stays in evaluation mode."""
    data = TensorDataset(numbers(40, 2, 6, 6), whole(40, below=3))
    teacher = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    teacher.eval().requires_grad_(False)
    student = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = F.log_softmax(teacher(x) / 2, 1)
        outputs = student(x)
        near = F.kl_div(F.log_softmax(outputs / 2, 1), wanted, log_target=True, reduction="batchmean")
        return 0.7 * 4 * near + 0.3 * F.cross_entropy(outputs, y)

    if plain:
        for x, y in batches(data):
            opt.zero_grad()
            loss_of(x, y).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=student, teacher=teacher, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(loss_of(x, y))
            update.step()
            yield ()
    yield (student, teacher)


def triplets(plain: bool) -> Program:
    """A Siamese network with normalised weights: an anchor, a like and an unlike sample."""
    data = TensorDataset(numbers(40, 6), numbers(40, 6, seed=4), numbers(40, 6, seed=5))
    norm = nn.utils.parametrizations.weight_norm
    net = nn.Sequential(norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 4, bias=False))
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    far = nn.TripletMarginLoss(margin=1.0)
    if plain:
        for anchor, like, unlike in batches(data):
            opt.zero_grad()
            far(net(anchor), net(like), net(unlike)).backward()
            opt.step()
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, seed=SEED)
        for update in updates(run, data):
            for anchor, like, unlike in update:
                update.backward(far(net(anchor), net(like), net(unlike)))
            update.step()
            yield ()
    yield (net,)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        return F.relu(x + self.body(x))


class Average(nn.Module):
    """An average of weights whose decay grows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Go towards the model."""
        for own, other in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            if own.is_floating_point():
                own.lerp_(other, 1 - min(0.99, (1 + step) / (10 + step)))
            else:
                own.copy_(other)


def resnet(plain: bool) -> Program:
    """A ResNet with mixup in the loop, no decay for norms, an average of weights, and a cosine by update."""
    data = TensorDataset(numbers(40, 1, 8, 8), whole(40, below=3))
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), Block(4), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(4, 3)
    )
    few = [p for p in net.parameters() if p.ndim < 2]
    groups = [{"params": [p for p in net.parameters() if p.ndim > 1]}, {"params": few, "weight_decay": 0.0}]
    opt = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=1e-3)
    ema = Average(net)

    def mixed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        share, hot = float(np.random.beta(0.8, 0.8)), F.one_hot(y, 3).float()
        return torch.lerp(x, x.flip(0), share), torch.lerp(hot, hot.flip(0), share)

    def rate(number: int) -> None:
        for group in opt.param_groups:
            group["lr"] = 0.05 * (1 + math.cos(math.pi * number / 12))

    if plain:
        for number, (x, y) in enumerate(batches(data)):
            opt.zero_grad()
            x, y = mixed(x, y)
            F.cross_entropy(net(x), y).backward()
            opt.step()
            rate(number + 1)
            ema.update(net, number)
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, ema=ema, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                x, y = mixed(x, y)
                update.backward(F.cross_entropy(net(x), y))
            update.step()
            rate(update.number + 1)
            ema.update(net, update.number)
            yield ()
    yield (net, ema)


def timm_resnet(plain: bool) -> Program:
    """The same of timm's parts. Its mixup takes an even number of samples: parts of four."""
    import timm
    import timm.data
    import timm.optim
    import timm.scheduler
    import timm.utils

    data = TensorDataset(numbers(48, 3, 32, 32), whole(48, below=3))
    net = timm.create_model("resnet10t", num_classes=3, drop_path_rate=0.1)
    opt = timm.optim.create_optimizer_v2(net, opt="lamb", lr=0.01, weight_decay=0.02)
    cosine = timm.scheduler.CosineLRScheduler(opt, t_initial=12, warmup_t=3, warmup_lr_init=1e-4, t_in_epochs=False)
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=3)
    ema = timm.utils.ModelEmaV3(net, decay=0.99, use_warmup=True)
    if plain:
        for number, (x, y) in enumerate(batches(data, batch=16, passes=range(4))):
            opt.zero_grad()
            x, y = mixup(x, y)
            F.cross_entropy(net(x), y).backward()
            opt.step()
            ema.update(net, step=number)
            cosine.step_update(number + 1)
            yield ()
    else:
        run = edt.elastic(model=net, opt=opt, cosine=cosine, ema=ema, seed=SEED)
        for update in updates(run, data, batch=16, epochs=4):
            for x, y in update:
                x, y = mixup(x, y)
                update.backward(F.cross_entropy(net(x), y))
            update.step()
            ema.update(net, step=update.number)
            cosine.step_update(update.number + 1)
            yield ()
    yield (net, ema)


def two_phases(plain: bool) -> Program:
    """An autoencoder first, and then a classifier over it, each in epochs of its own."""
    data = TensorDataset(numbers(40, 6), whole(40, below=3))
    encoder, decoder, head = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)
    first = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    second = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)

    def start() -> Tensor:
        return torch.stack([x for x, _ in data]).mean(0)

    if plain:
        middle = start()
        for x, _ in batches(data, passes=range(1)):
            first.zero_grad()
            F.mse_loss(decoder(encoder(x - middle)), x).backward()
            first.step()
            yield ()
        for x, y in batches(data, passes=SECOND):
            second.zero_grad()
            F.cross_entropy(head(encoder(x - middle)), y).backward()
            second.step()
            yield ()
    else:
        run = edt.elastic(encoder=encoder, decoder=decoder, head=head, first=first, second=second, seed=SEED)
        middle = run.once(start)
        for update in updates(run, data, epochs=1):
            for x, _ in update:
                update.backward(F.mse_loss(decoder(encoder(x - middle)), x))
            update.step(first)
            yield ()
        for update in updates(run, data):
            for x, y in update:
                update.backward(F.cross_entropy(head(encoder(x - middle)), y))
            update.step(second)
            yield ()
    yield (encoder, decoder, head)
