"""The records members exchange: what goes in comes out, and their length is known beforehand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.header import Header, Report, ShardStats, summarize

NUMBERS = st.floats(allow_nan=False)


@given(data=st.data(), shards=st.integers(1, 6), bits=st.tuples(*[st.integers(0, 5)] * 3), small=st.binary(max_size=9))
def test_round_trip(data, shards, bits, small):
    world = data.draw(st.integers(1, shards))
    counts = [data.draw(st.integers(min_value=shard == 0, max_value=4)) for shard in range(shards)]
    header = Header(("m",), parameters=bits[0], floats=bits[1], others=bits[2], small=len(small))
    reports = []
    for rank, block in enumerate(blocks(shards, world)):
        stats = tuple(
            ShardStats(
                shard=shard,
                samples=counts[shard],
                loss=data.draw(NUMBERS),
                correct=data.draw(st.none() | NUMBERS),
                metrics={"m": data.draw(NUMBERS)},
                indices=np.arange(counts[shard]) + data.draw(st.integers(0, 2**62)),
                worker=rank,
                pid=100 + rank,
            )
            for shard in block
            if counts[shard]
        )  # fmt: skip
        drawn = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool) for n in bits]
        report = Report(data.draw(st.integers(-1, 2**62)), stats, *drawn, small, rank, 100 + rank)
        record = header.encode(report)
        assert len(record) == header.length([counts[shard] for shard in block])
        decoded = header.decode(record + b"padding", block, counts)
        assert repr(decoded) == repr(report)
        reports.append(decoded)
    summary = summarize(reports)
    assert summary.pending == min(report.pending for report in reports)
    assert [s.shard for s in summary.shards] == [shard for shard in range(shards) if counts[shard]]
    for field in ("present", "changed_floats"):
        assert getattr(summary, field).tolist() == np.any([getattr(r, field) for r in reports], axis=0).tolist()
    assert summary.changed_others.tolist() == reports[0].changed_others.tolist()


def test_a_loss_that_is_not_a_number_survives():
    stats = ShardStats(0, 1, float("nan"), None, {}, np.zeros(1, dtype=np.int64), 0, 1)
    none = np.zeros(0, dtype=bool)
    header = Header(())
    decoded = header.decode(header.encode(Report(0, (stats,), none, none, none, b"", 0, 1)), range(1), [1])
    assert np.isnan(decoded.shards[0].loss)
    assert decoded.shards[0].correct is None
