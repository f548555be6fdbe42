"""Overfitting over many configurations: published fixtures, other programs, known answers, and what is undefined."""

import itertools
import math
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import DataError
from tidewalk.stats import overfitting
from tidewalk.stats.metrics import Figure, undefined


def noise(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# Rows are sessions. Best by mean in 4 blocks: the logits by hand, PBO 1/3 by the paper's "at or below 0".
FIXTURE = np.array([[4, 1, 0], [3, 1, 1], [2, 2, 0], [3, 1, 2], [-2, 1, 1], [-1, 2, 0], [-3, 1, 2], [-2, 2, 1]], float)


def test_pbo_fixture_golden() -> None:
    found = overfitting.pbo(FIXTURE, 4, "mean")
    assert sorted(found.lambdas) == pytest.approx([-math.log(3), 0.0, *[math.log(3)] * 4], abs=1e-12)
    assert found.value.value == pytest.approx(1 / 3)
    assert (found.lambdas < 0).mean() == pytest.approx(1 / 6)  # the convention of purgedcv
    assert found.blocks == 4


def test_pbo_of_noise_golden() -> None:
    # .642857 also by pypbo and purgedcv; centred columns are all overfitting, a real edge is none.
    records = noise(2024, (1000, 100))
    assert overfitting.pbo(records, 8).value.value == pytest.approx(0.642857, abs=5e-7)
    scaled = (records - records.mean(axis=0)) / records.std(axis=0)
    assert overfitting.pbo(scaled, 8).value.value == 1.0
    edge = records.copy()
    edge[:, 3] += 0.3
    found = overfitting.pbo(edge, 8)
    assert found.value.value == 0.0
    assert found.prob_oos_loss == 0.0


def test_pbo_is_that_of_another_program() -> None:
    purgedcv = pytest.importorskip("purgedcv", reason="purgedcv is in the extra `oracles`")
    for seed, shape, blocks in ((1, (400, 12), 8), (2, (320, 7), 10), (3, (160, 30), 4)):
        records = noise(seed, shape) + np.linspace(-0.1, 0.1, shape[1])
        theirs = purgedcv.probability_of_backtest_overfitting(records.T, n_splits=blocks)
        ours = overfitting.pbo(records, blocks)
        # They count logits below 0, the paper those at 0 too.
        assert (ours.lambdas < 0).mean() == pytest.approx(theirs.pbo, abs=1e-12)


@pytest.mark.slow
def test_the_other_program_takes_configurations_as_rows_golden() -> None:
    purgedcv = pytest.importorskip("purgedcv", reason="purgedcv is in the extra `oracles`")
    # The other way round it gives another number without complaint, as ours does.
    noisy = noise(2024, (1000, 100))
    found = [purgedcv.probability_of_backtest_overfitting(part, n_splits=8).pbo for part in (noisy.T, noisy)]
    assert found == pytest.approx([0.642857, 0.528571], abs=5e-7)


def test_null_band_is_wide_golden() -> None:
    # 200 noise matrices of 500 sessions, 50 configurations, 8 blocks: mean .496, sd .18, 5-95 % .20-.79.
    low, high = overfitting.pbo(noise(0, (500, 50)), 8).null90 or (0.0, 1.0)
    assert low == pytest.approx(0.20, abs=0.08)
    assert high == pytest.approx(0.79, abs=0.08)


@pytest.mark.slow
def test_null_band_holds_its_level() -> None:
    found = [overfitting.pbo(noise(100 + seed, (500, 50)), 8) for seed in range(80)]
    values = np.array([part.value.value for part in found])
    assert values.mean() == pytest.approx(0.496, abs=4 * 0.18 / math.sqrt(80))
    assert values.std() == pytest.approx(0.18, abs=0.05)
    inside = np.mean([part.null90[0] <= value <= part.null90[1] for part, value in zip(found, values, strict=True)])
    assert 0.8 <= inside <= 0.99


def test_copies_of_one_configuration_have_a_band_of_their_own() -> None:
    # 49 near copies and one that is apart: how alike they are stays in the null.
    common = noise(5, (400, 1))
    alike = np.hstack([common + 0.05 * noise(6, (400, 49)), noise(7, (400, 1))])
    band, wide = overfitting.pbo(alike, 8).null90, overfitting.pbo(noise(8, (400, 50)), 8).null90
    assert band is not None
    assert wide is not None
    assert band != wide


def test_the_halves_are_counted_whatever_the_blocks_leave_over() -> None:
    # 1,003 sessions in 8 blocks: pieces of 125 and 126, none dropped.
    records = noise(3, (1003, 5))
    found, cut = overfitting.pbo(records, 8), overfitting.pbo(records[:1000], 8)
    assert len(found.lambdas) == math.comb(8, 4)
    assert not np.array_equal(found.lambdas, cut.lambdas) or found.slope != cut.slope


def slow_pbo(records: np.ndarray, blocks: int) -> float:
    """PBO straight from its definition, split by split."""
    pieces = np.array_split(np.arange(len(records)), blocks)
    low = []
    for chosen in itertools.combinations(range(blocks), blocks // 2):
        inside = np.concatenate([pieces[k] for k in chosen])
        outside = np.setdiff1d(np.arange(len(records)), inside)
        ratios = [records[part].mean(axis=0) / records[part].std(axis=0, ddof=1) for part in (inside, outside)]
        best = ratios[0].argmax()
        rank = (ratios[1] < ratios[1][best]).sum() + 1
        share = rank / (records.shape[1] + 1)
        low.append(math.log(share / (1 - share)) <= 0)
    return float(np.mean(low))


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([2, 4, 6]), st.integers(2, 6))
def test_pbo_is_its_definition(seed: int, blocks: int, count: int) -> None:
    records = noise(seed, (12 * blocks, count)) * np.geomspace(0.01, 100, count) + 50.0
    assert overfitting.pbo(records, blocks).value.value == slow_pbo(records, blocks)


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.floats(0.01, 1000.0))
def test_pbo_ignores_the_unit_and_the_order_of_configurations(seed: int, unit: float) -> None:
    records = noise(seed, (80, 5))
    found, scaled = overfitting.pbo(records, 4), overfitting.pbo(records[:, ::-1] * unit, 4)
    assert scaled.lambdas == pytest.approx(found.lambdas)
    assert scaled.null90 == pytest.approx(found.null90)


def test_configurations_that_never_trade_do_no_harm() -> None:
    records = noise(11, (200, 4))
    records[:, 1] = 0.0
    records[:100, 2] = 0.0
    found = overfitting.pbo(records)
    assert found.value.value is not None
    assert np.isfinite(found.lambdas).all()
    traded = overfitting.pbo(np.delete(records, 1, axis=1))
    assert (found.value, found.null90, found.slope) == (traded.value, traded.null90, traded.slope)


def test_copies_of_a_configuration_count_once() -> None:
    # Copies, and a third that always loses: the best of two stands at 2 of 3, a logit of ln 2.
    record = noise(13, (80, 1))
    for copy in (record, 2.0 * record, record * (1.0 + 1e-14)):
        found = overfitting.pbo(np.hstack([record, copy, record - 9.0]), 4)
        assert found.lambdas == pytest.approx([math.log(2.0)] * 6)
    mean = overfitting.pbo(np.hstack([record, 2.0 * record, record - 9.0]), 4, "mean")
    assert len(np.unique(mean.lambdas.round(9))) > 1  # twice the mean is another mean


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (np.zeros((200, 4)), "none of 4 configurations has variance"),
        (np.hstack([noise(14, (200, 1)), np.zeros((200, 1))]), "only 1 of 2 configurations can be ranked: the"),
        (np.repeat(noise(14, (200, 1)), 3, axis=1), "only 1 of 3 configurations can be ranked"),
        (noise(15, (60, 2)), "2 configurations over 60 sessions are too few: noise gives 0.00 to "),
    ],
)
def test_pbo_over_what_cannot_be_ranked_is_undefined(records: np.ndarray, reason: str) -> None:
    found = overfitting.pbo(records)
    assert str(found.value.reason).startswith(reason)
    assert (found.null90, found.slope, found.prob_oos_loss) == (None, None, None)


@pytest.mark.parametrize(("sessions", "blocks"), [(39, 2), (40, 4), (59, 4), (60, 6), (159, 14), (160, 16), (5000, 16)])
def test_blocks_have_ten_sessions(sessions: int, blocks: int) -> None:
    assert overfitting.default_blocks(sessions) == blocks


def test_pbo_is_undefined_or_refused() -> None:
    assert overfitting.pbo(noise(1, (200, 1))).value == undefined("a single configuration: nothing was selected")
    assert overfitting.pbo(noise(1, (39, 5))).value == undefined("39 sessions, 40 needed")
    for blocks in (3, 0, 18, 16):
        with pytest.raises(DataError, match=f"blocks: {blocks} given for 30 sessions"):
            overfitting.pbo(noise(1, (30, 5)), blocks)
    with pytest.raises(DataError, match="session 2 of configuration 1 is nan"):
        overfitting.pbo(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, math.nan]]))
    for shape in ((5,), (5, 0), (2, 2, 2)):
        with pytest.raises(DataError, match="sessions x configurations"):
            overfitting.pbo(np.zeros(shape))


def test_effective_trials_golden() -> None:
    # Rank by entropy: N for uncorrelated records, 1 for copies, in between by hand for a pair with correlation r.
    assert overfitting.effective_trials(np.eye(4)[np.arange(400) % 4]).value == pytest.approx(3.0, abs=1e-9)
    one = noise(1, (300, 1))
    assert overfitting.effective_trials(one @ np.array([[1.0, 2.0, -0.5]])).value == pytest.approx(1.0, abs=1e-6)
    assert overfitting.effective_trials(noise(2, (20_000, 10))).value == pytest.approx(10.0, abs=0.05)
    pair = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    entropy = -sum(share * math.log(share) for share in (0.8, 0.2))
    assert overfitting.effective_trials(pair).value == pytest.approx(math.exp(entropy))


def test_effective_trials_of_degenerate_records() -> None:
    assert overfitting.effective_trials(np.zeros((50, 3))) == undefined("no configuration has variance")
    assert overfitting.effective_trials(noise(1, (2, 3))) == undefined("fewer than 3 sessions")
    with_flat = np.hstack([noise(1, (50, 1)), np.zeros((50, 5))])
    assert overfitting.effective_trials(with_flat) == Figure(1.0)


@given(st.integers(0, 1000), st.integers(1, 8))
def test_effective_trials_lie_between_one_and_the_number(seed: int, count: int) -> None:
    found = overfitting.effective_trials(noise(seed, (30, count))).value
    assert found is not None
    assert 1.0 - 1e-9 <= found <= count + 1e-9


def test_spa_finds_the_planted_model_golden() -> None:
    # 20 models of 400 sessions, deviation .01; .004 a session on model 3: p 0, 0, 0, and StepM names it alone.
    records = 0.01 * noise(5, (400, 20))
    records[:, 3] += 0.004
    found = overfitting.spa(records, np.zeros(400))
    assert (found.lower, found.consistent, found.upper) == (0.0, 0.0, 0.0)
    assert found.superior == (3,)
    # Columns keep their numbers when one before them is the benchmark itself.
    assert overfitting.spa(np.hstack([np.zeros((400, 1)), records]), np.zeros(400)).superior == (4,)
    # Against a benchmark that earns the same, it is nothing special.
    assert (overfitting.spa(records, records[:, 3] - 0.001 * noise(6, (400, 1))[:, 0]).consistent or 0.0) > 0.05


@pytest.mark.slow
def test_spa_keeps_its_size_on_noise_golden() -> None:
    # 60 repeats: rejections at 5 % .10, .03, .03 for lower, consistent, upper; mean consistent p .45.
    found = [overfitting.spa(noise(seed, (400, 20)), np.zeros(400), draws=500) for seed in range(60)]
    p = np.array([[part.lower, part.consistent, part.upper] for part in found])
    assert (p[:, 0] <= p[:, 1] + 1e-12).all()
    assert (p[:, 1] <= p[:, 2] + 1e-12).all()
    assert ((p < 0.05).mean(axis=0) <= (0.25, 0.15, 0.15)).all()  # the 99.9 % points of 60 draws at .10, .05, .05
    assert p[:, 1].mean() == pytest.approx(0.45, abs=0.15)


def test_spa_leaves_out_what_is_the_benchmark_itself() -> None:
    records = noise(7, (100, 3))
    base = records[:, 1].copy()
    found = overfitting.spa(records, base)
    assert found.consistent == overfitting.spa(records[:, [0, 2]], base).consistent
    nothing = overfitting.spa(base[:, None], base)
    assert (nothing.consistent, nothing.reason) == (None, "no configuration differs from the benchmark")
    assert overfitting.spa(records + 1e6, base + 1e6).consistent == pytest.approx(found.consistent)


def test_spa_takes_one_configuration_and_all_that_are_better() -> None:
    good = 0.5 + noise(0, (200, 3))
    assert overfitting.spa(good[:, :1], np.zeros(200)).superior == (0,)
    assert overfitting.spa(good, np.zeros(200)).superior == (0, 1, 2)
    one_trade = np.zeros((200, 1))
    one_trade[7] = 100.0
    assert (overfitting.spa(one_trade, np.zeros(200)).consistent or 0.0) > 0.05


def test_spa_is_repeatable_undefined_or_refused() -> None:
    records = noise(9, (120, 4))
    assert overfitting.spa(records, np.zeros(120)) == overfitting.spa(records, np.zeros(120))
    assert overfitting.spa(records[:39], np.zeros(39)).reason == "39 sessions, 40 needed"
    with pytest.raises(DataError, match="benchmark: 7 sessions against 120"):
        overfitting.spa(records, np.zeros(7))


@pytest.mark.bench
def test_many_configurations_are_judged_in_seconds() -> None:
    records, start = noise(1, (5000, 50)), time.perf_counter()
    overfitting.pbo(records)
    overfitting.effective_trials(records)
    overfitting.spa(records, np.zeros(5000))
    assert time.perf_counter() - start < 5.0


def test_spa_without_arch_is_undefined_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "arch.bootstrap", None)
    found = overfitting.spa(noise(0, (60, 2)), np.zeros(60))
    assert (found.lower, found.consistent, found.upper) == (None, None, None)
    assert "arch cannot be loaded" in found.reason
