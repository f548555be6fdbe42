"""A study of two symbols, one of which lacks most of its bars: its validation is padded by what is stated, not more."""

import dataclasses

import numpy as np

from support import as_nq, planted_market, small_config
from tidewalk.run.study import plan_study
from tidewalk.train import batches


def with_holes(market, *, every: int):
    """The market with one bar in `every` left."""
    kept = np.arange(0, market.num_bars, every)
    arrays = {
        field.name: getattr(market, field.name)[kept]
        for field in dataclasses.fields(market)
        if isinstance(getattr(market, field.name), np.ndarray)
    }
    return dataclasses.replace(market, **arrays)


def test_padding_of_a_study_of_a_whole_symbol_and_one_with_holes(tmp_path):
    whole = planted_market(days=280)
    config = small_config(tmp_path, seeds=3)
    both = dataclasses.replace(config, data=dataclasses.replace(config.data, symbol="ES.FUT,NQ.FUT"))
    study = plan_study(both, [whole, as_nq(with_holes(whole, every=6))], compose="scan")
    program, members = study.program, study.num_members
    windows = np.asarray(study.windows.val)
    assert program.val_lengths == tuple(np.repeat(windows[:, 1] - windows[:, 0], 3).tolist())
    assert min(program.val_lengths) * 4 < max(program.val_lengths), "the lengths do differ"
    plan = batches.buckets(program.val_lengths, members, program.val_bars)
    evaluated = sum(bucket.bars * (bucket.stop - bucket.first) for bucket in plan)
    own = sum(program.val_lengths)
    assert evaluated <= own / (1 - batches.MOST_PADDING)
    assert members * program.val_bars > 1.5 * own, "in one bucket it would be far more"
    assert len(plan) <= batches.MOST_BUCKETS
