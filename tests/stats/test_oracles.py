"""The same records through other packages: skfolio, purgedcv and empyrical agree where they mean the same.

They differ among themselves in the fifth digit (degrees of freedom, bias of the moments), hence the tolerance.
"""

import math
from types import ModuleType

import numpy as np
import pytest

from tidewalk.stats import inference, metrics

NOT_INSTALLED = "another program to compare with; install the extra `oracles`"
TOLERANCE = 2e-4

# Long enough that degrees of freedom are below the tolerance, and short of certainty.
RECORDS = {
    "noise": np.random.default_rng(0).standard_normal(4_000) + 0.05,
    "skewed": 0.46 - np.random.default_rng(1).exponential(0.45, 8_000),
    "heavy": 0.1 * np.random.default_rng(2).standard_t(4, 6_000) + 0.003,
    "losing": np.random.default_rng(3).standard_normal(4_000) - 0.02,
}


@pytest.fixture
def skfolio() -> ModuleType:
    return pytest.importorskip("skfolio.measures", reason=NOT_INSTALLED)


@pytest.fixture
def purgedcv() -> ModuleType:
    return pytest.importorskip("purgedcv", reason=NOT_INSTALLED)


@pytest.fixture
def empyrical() -> ModuleType:
    return pytest.importorskip("empyrical", reason=NOT_INSTALLED)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("star", [0.0, 0.02])
def test_psr_is_theirs(name: str, star: float, skfolio: ModuleType, purgedcv: ModuleType) -> None:
    ours = inference.session_psr(RECORDS[name], star).value
    assert ours == pytest.approx(
        skfolio.probabilistic_sharpe_ratio(RECORDS[name], benchmark_sharpe_ratio=star), abs=TOLERANCE
    )
    assert ours == pytest.approx(purgedcv.probabilistic_sharpe_ratio(RECORDS[name], star), abs=TOLERANCE)


@pytest.mark.parametrize("name", RECORDS)
def test_psr_and_dsr_are_their_closed_forms(name: str) -> None:
    record = RECORDS[name]
    n, sr = len(record), record.mean() / record.std(ddof=1)
    scaled = (record - record.mean()) / record.std()
    error = math.sqrt((1 - (scaled**3).mean() * sr + ((scaled**4).mean() - 1) / 4 * sr**2) / (n - 1))
    assert inference.session_sharpe_se(record).value == pytest.approx(error, abs=1e-12)
    for star, found in (
        (0.0, inference.session_psr(record)),
        (0.02, inference.session_psr(record, 0.02)),
        (0.1 * 1.5745983, inference.session_dsr(record, 10, 0.1)),
    ):
        closed = 0.5 * math.erfc(-(sr - star) / error / math.sqrt(2))
        assert found.value == pytest.approx(closed, abs=1e-12 if star != 0.1 * 1.5745983 else 1e-6)


@pytest.mark.parametrize("name", RECORDS)
def test_dsr_is_theirs(name: str, skfolio: ModuleType, purgedcv: ModuleType) -> None:
    trials = 0.02 * np.random.default_rng(7).standard_normal(12)
    spread = float(trials.std(ddof=1))
    ours = inference.session_dsr(RECORDS[name], 12, spread).value
    assert ours == pytest.approx(purgedcv.deflated_sharpe_ratio(RECORDS[name], 12, spread**2), abs=TOLERANCE)
    assert ours == pytest.approx(skfolio.deflated_sharpe_ratio(RECORDS[name], trials), abs=TOLERANCE)


@pytest.mark.parametrize("count", [2, 5, 10, 45, 100, 1000, 10_000])
def test_expected_maximum_and_length_are_theirs(count: int, skfolio: ModuleType, purgedcv: ModuleType) -> None:
    theirs = skfolio.expected_max_sharpe_ratio(count, 0.3)
    assert inference.expected_max_sharpe(count, 0.3) == pytest.approx(theirs, abs=1e-12)
    assert inference.min_btl(count) == pytest.approx(purgedcv.minimum_backtest_length(count), abs=1e-9)


@pytest.mark.parametrize("name", ["noise", "skewed", "heavy"])
def test_min_trl_is_theirs(name: str, purgedcv: ModuleType) -> None:
    ratio, moments = metrics.sharpe(RECORDS[name], 1.0).value, inference.skew_kurt(RECORDS[name])
    ours = inference.session_min_trl(RECORDS[name]).value
    theirs = purgedcv.min_track_record_length(ratio, 0.0, 0.05, *moments)  # in whole periods, rounded up
    assert ours is not None
    assert math.ceil(ours) == theirs


@pytest.mark.parametrize("name", RECORDS)
def test_measures_of_a_record_are_theirs(name: str, empyrical: ModuleType) -> None:
    record = RECORDS[name]
    assert metrics.sharpe(record, 252).value == pytest.approx(empyrical.sharpe_ratio(record), abs=1e-9)
    assert metrics.sortino(record, 252).value == pytest.approx(empyrical.sortino_ratio(record), abs=1e-9)
    downside = metrics.downside_deviation(record).value or 0.0
    assert downside * math.sqrt(252) == pytest.approx(empyrical.downside_risk(record), abs=1e-9)
    # They compound returns where we add up money: small ones, and the drawdown of both is the same to first order.
    small = 1e-7 * record
    assert metrics.max_drawdown(small) == pytest.approx(-empyrical.max_drawdown(small), rel=1e-4)


def test_where_they_give_a_number_we_give_a_reason(empyrical: ModuleType) -> None:
    level = [0.1] * 50
    assert not np.isfinite(empyrical.sharpe_ratio(np.array(level))) or empyrical.sharpe_ratio(np.array(level)) > 1e9
    assert metrics.sharpe(level, 252).reason == "no variance"
