"""Where everything lies in the flat vector, and how buffers are watched."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.layout import ALIGNMENT, Layout
from edt_sdk.training.update.buffers import Buffers


def layout_of(model, parameters=None, shards=4):
    return Layout(model, torch.optim.SGD(parameters or model.parameters(), lr=0.1), shards)


def model_with_everything():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2).double())
    model[2].weight.requires_grad_(False)
    model.tied = model[0]
    model.register_buffer("wave", torch.zeros(3, dtype=torch.complex64))
    model.register_buffer("flags", torch.zeros(4, dtype=torch.bool))
    model.register_buffer("nothing", None)
    model.alias = nn.Module()
    model.alias.register_buffer("wave_again", model.wave)
    return model


def test_entries_are_parameters_then_float_buffers_each_once():
    model = model_with_everything()
    layout = layout_of(model, [{"params": [model[2].bias]}, {"params": list(model[0].parameters())}])
    assert layout.names == ("2.bias", "0.weight", "0.bias")
    assert [b.name for b in layout.floats] == ["wave", "1.running_mean", "1.running_var"]
    assert [b.name for b in layout.others] == ["flags", "1.num_batches_tracked"]
    vector = layout.vector()
    assert [section.dtype for section in vector.sections] == [torch.float64, torch.float32]
    shapes = [tuple(view.shape) for view in vector.views]
    assert shapes == [(2,), (5, 3), (5,), (3, 2), (5,), (5,)]


def test_entries_are_aligned_and_do_not_overlap():
    model = nn.ModuleList([nn.Linear(n, m) for n in (1, 3, 16, 17) for m in (1, 5, 16)])
    vector = layout_of(model).vector()
    for number, view in enumerate(vector.views):
        assert view.data_ptr() % ALIGNMENT == 0
        view.fill_(number)
    assert all((view == number).all() for number, view in enumerate(vector.views))
    vector += vector
    assert all((view == 2 * number).all() for number, view in enumerate(vector.views))


@given(
    sizes=st.lists(st.integers(0, 100), min_size=1, max_size=6), shards=st.integers(1, 9), limit=st.integers(1, 3000)
)
def test_pieces_cover_a_section_for_every_world(sizes, shards, limit):
    model = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])
    layout = layout_of(model, shards=shards)
    section = layout.vector().sections[0]
    for world in range(1, shards + 1):
        at = 0
        for start, length in layout.pieces(0, world, limit):
            assert start == at
            assert length > 0
            assert start * 4 % ALIGNMENT == length * 4 % ALIGNMENT == 0
            assert length * world * 4 <= max(limit, ALIGNMENT * world)
            at += length * world
        assert layout.lengths[0] <= at <= len(section)


def test_lazy_parameters_and_buffers_are_refused_with_a_hint():
    for model in (nn.LazyLinear(3), nn.LazyBatchNorm1d(affine=False)):
        parameters = [nn.Parameter(torch.zeros(1))]
        with pytest.raises(Unprocessable, match="not initialised") as caught:
            layout_of(model, parameters)
        assert "one batch" in caught.value.hint


def test_an_optimizer_with_nothing_to_train_is_refused():
    model = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(Unprocessable, match="no parameter that needs a gradient"):
        layout_of(model)


def test_parameters_of_a_loss_function_are_owned_too():
    model, loss = nn.Linear(2, 2), nn.Linear(1, 1)
    layout = layout_of(model, [*model.parameters(), *loss.parameters()])
    assert layout.names == ("weight", "bias", "param_groups[0][2]", "param_groups[0][3]")


class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("mean", torch.tensor([1.0, float("nan"), -0.0]))
        self.register_buffer("other", torch.zeros(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("positions", torch.arange(4).expand(2, -1))
        self.register_buffer("cache", torch.zeros(2), persistent=False)


def watched():
    model = Watched()
    layout = layout_of(model)
    buffers = Buffers(layout)
    buffers.save()
    names = [b.name for b in (*layout.floats, *layout.others)]
    return model, buffers, lambda: {name for name, bit in zip(names, buffers.changed().tolist(), strict=True) if bit}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.mean.add_(1),
        lambda m: m.mean.data.add_(1),  # a version counter does not see this
        lambda m: setattr(m, "mean", m.mean + 1),  # nor would a look at the old object
        lambda m: setattr(m, "mean", m.mean * m.weight + 1),
        lambda m: m.mean.data.mul_(-1),  # −0.0 becomes 0.0
    ],
)
def test_any_change_is_seen_and_undone_bit_for_bit(change):
    model, buffers, changed = watched()
    original, bits = model.mean, model.mean.view(torch.int32).tolist()
    assert changed() == set()
    with torch.no_grad():
        change(model)
    assert changed() == {"mean"}
    buffers.restore()
    assert changed() == set()
    assert model.mean is original
    assert model.mean.view(torch.int32).tolist() == bits
    assert not model.mean.requires_grad


def test_whole_numbers_are_watched_and_values_are_committed_in_place():
    model, buffers, changed = watched()
    count, mean = model.count, model.mean
    model.count += 1
    assert changed() == {"count"}
    buffers.restore()
    buffers.commit([0, 3], [torch.ones(3), torch.tensor(5)])
    assert model.mean is mean
    assert model.mean.tolist() == [1, 1, 1]
    assert model.count is count
    assert int(model.count) == 5


def test_a_cache_that_grows_is_left_alone_and_a_persistent_buffer_must_not():
    model, buffers, changed = watched()
    model.cache = torch.ones(5)
    assert changed() == set()
    buffers.restore()
    assert model.cache.tolist() == [1] * 5
    buffers.save()
    assert [tuple(value.shape) for value in buffers.values(range(3))] == [(3,), (2,), (2,)]
    model.other = torch.zeros(3)
    with pytest.raises(Unprocessable, match=r"other changed its shape from \(2,\) to \(3,\)") as caught:
        changed()
    assert "persistent=False" in caught.value.hint


def test_a_buffer_that_is_removed_is_an_error():
    model, _, changed = watched()
    model.other = None
    with pytest.raises(Unprocessable, match="removed"):
        changed()
