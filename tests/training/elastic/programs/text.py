"""Programs over text and sequences."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import edt_sdk.elastic as edt
from tests.training.elastic.programs.loop import SEED, Program, batches, numbers, updates, whole


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


def sequence_to_sequence(plain: bool) -> Program:
    """A decoder that is given its own words ever more often in place of the right ones."""
    data = TensorDataset(whole(40, 6, below=11), whole(40, 5, below=11, seed=4))
    words, encoder, decoder, head = (
        nn.Embedding(11, 8),
        nn.GRU(8, 8, batch_first=True),
        nn.GRUCell(8, 8),
        nn.Linear(8, 11),
    )
    models = {"words": words, "encoder": encoder, "decoder": decoder, "head": head}
    opt = torch.optim.Adam([p for model in models.values() for p in model.parameters()], lr=0.02)

    def loss_of(x: Tensor, y: Tensor, taught: float) -> Tensor:
        state, word, logits = encoder(words(x))[1][0], torch.zeros(len(x), dtype=torch.long), []
        for right in y.T:
            state = decoder(words(word), state)
            logits.append(head(state))
            word = torch.where(torch.rand(len(x)) < taught, right, logits[-1].argmax(1))
        return F.cross_entropy(torch.stack(logits, 1).flatten(0, 1), y.flatten())

    if plain:
        for number, (x, y) in enumerate(batches(data)):
            opt.zero_grad()
            loss_of(x, y, max(0.5, 1 - number / 20)).backward()
            nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 1.0)
            opt.step()
            yield ()
    else:
        run = edt.elastic(**models, opt=opt, seed=SEED)
        for update in updates(run, data):
            for x, y in update:
                update.backward(loss_of(x, y, max(0.5, 1 - update.number / 20)))
            update.step(clip=1.0)
            yield ()
    yield tuple(models.values())


def tabular_stream(plain: bool) -> Program:
    """A table in text files: categories and numbers, a line each."""
    with tempfile.TemporaryDirectory() as folder:
        category, x = whole(40, below=5).tolist(), numbers(40, 3).tolist()
        lines = [" ".join(map(str, (kind, *row))) for kind, row in zip(category, x, strict=True)]
        for number in range(3):
            (Path(folder) / f"{number}.txt").write_text("\n".join(lines[number::3]))

        def decode(line: bytes) -> tuple[int, Tensor, Tensor]:
            kind, *row = line.split()
            values = torch.tensor([float(value) for value in row])
            return int(kind), values, values.sum() * (int(kind) - 2)

        data = edt.stream(Path(folder).glob("*.txt"), decode, near=4)
        kinds, net = nn.Embedding(5, 4), nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 1))
        opt = torch.optim.AdamW([*kinds.parameters(), *net.parameters()], lr=0.02)

        def loss_of(kind: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return F.huber_loss(net(torch.cat([kinds(kind), x], 1)).squeeze(1), y)

        if plain:
            for batch in batches(data):
                opt.zero_grad()
                loss_of(*batch).backward()
                opt.step()
                yield ()
        else:
            run = edt.elastic(kinds=kinds, model=net, opt=opt, seed=SEED)
            for update in updates(run, data):
                for batch in update:
                    update.backward(loss_of(*batch))
                update.step()
                yield ()
        yield (kinds, net)
