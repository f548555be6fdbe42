"""Default features: every column against its meaning, and the laws that all of them keep."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market.bar_frames import SESSION_MINUTES, bars_of, minutes, random_bars, rolling, table, with_shadow
from tidewalk.data.bars import Loaded
from tidewalk.data.contracts.rolls import FrontSeries, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.market import features
from tidewalk.market.features import FEATURES, LIMIT, WARM_UP_BARS, bars_frame, build_default, chunks

UNIT_COLUMNS = (
    "ret_1", "ret_prev", "ret_5", "ret_15", "ret_60", "ret_240", "ret_session", "gap", "range", "vwap_gap", "macd",
    "macd_hist", "ema_gap_960",
)  # fmt: skip
ONE_COLUMNS = (
    "bar_place", "channel_60", "channel_240", "rsi_14", "tod_sin", "tod_cos", "to_close", "dow_sin", "dow_cos",
    "to_roll",
)  # fmt: skip


def built(bars: pl.DataFrame) -> np.ndarray:
    return build_default(bars).to_numpy()


def column(bars: pl.DataFrame, name: str) -> np.ndarray:
    return build_default(bars)[name].to_numpy()


def soft(x: float) -> float:
    return x / math.sqrt(1 + (x / 10) ** 2)


# The names.


def test_the_set_has_20_to_30_columns_in_the_order_of_their_documentation() -> None:
    names = build_default(random_bars(0, 60)).columns
    assert names == list(FEATURES)
    assert 20 <= len(names) <= 30
    assert set(build_default(random_bars(0, 60)).dtypes) == {pl.Float64}


def test_rows_before_the_warm_up_are_undefined_and_all_later_ones_defined() -> None:
    values = built(random_bars(0, 60))
    assert np.isnan(values[:WARM_UP_BARS]).all()
    assert np.isfinite(values[WARM_UP_BARS:]).all()


# Golden values, by hand. 22 bars stand still at 100; then the market moves.


def still_then(*moves: float, **columns: object) -> pl.DataFrame:
    return bars_of(100.0 + np.cumsum([0.0] * 22 + list(moves)), **columns)


def weight(span: int, bars: int) -> float:
    """Weight of the newest of so many bars in an exponential mean over them all: 1 / (1 + r + ... + r^(bars - 1))."""
    keep = 1 - 2 / (span + 1)
    return 1 / sum(keep**i for i in range(bars))


def test_a_first_move_is_measured_by_the_volatility_it_makes() -> None:
    row = build_default(still_then(4.0)).row(-1, named=True)
    # step 4 and range 4: (16 + 16 / (4 log 2)) / 2 = 10.8854, the only one of 23 that is not 0
    per_bar = (16 + 16 / (4 * math.log(2))) / 2
    assert per_bar == pytest.approx(10.8854, abs=1e-4)
    v20, v60, v240 = (math.sqrt(per_bar * weight(span, 23)) for span in (20, 60, 240))
    v2400 = math.sqrt(per_bar * weight(2400, 23))
    assert row["ret_1"] == pytest.approx(soft(4 / v60))
    assert row["ret_1"] == pytest.approx(4.39983, abs=1e-5)
    assert row["ret_prev"] == 0
    assert row["ret_5"] == pytest.approx(soft(4 / v60 / math.sqrt(5)))
    assert row["ret_15"] == pytest.approx(soft(4 / v60 / math.sqrt(15)))
    assert row["ret_60"] == pytest.approx(soft(4 / v60 / math.sqrt(22)))  # all 22 moves there are
    assert row["ret_240"] == pytest.approx(soft(4 / v240 / math.sqrt(22)))
    assert row["ret_session"] == pytest.approx(soft(4 / math.sqrt(16 + v60**2)))
    assert row["range"] == row["ret_1"]
    assert row["vol_fast"] == pytest.approx(math.log((v20 / v240 + 0.1) / 1.1))
    assert row["vol_slow"] == pytest.approx(math.log((v240 / v2400 + 0.1) / 1.1))
    assert row["rsi_14"] == 1
    assert (row["channel_60"], row["channel_240"], row["bar_place"]) == (1, 1, 1)
    assert row["persistence"] == 0
    # exponential means of a step of 4: 4 (1 - 2 / 13) less 4 (1 - 2 / 27), seen from above
    assert row["macd"] == pytest.approx(soft(4 * (2 / 13 - 2 / 27) / v60))
    assert row["macd_hist"] == pytest.approx(soft(4 * (2 / 13 - 2 / 27) * (1 - 0.2) / v60))
    v960 = math.sqrt(per_bar * weight(960, 23))
    assert row["ema_gap_960"] == pytest.approx(soft(4 * (1 - 2 / 961) / v960 / math.sqrt(960)))


def test_a_move_and_its_return() -> None:
    row = build_default(still_then(4.0, -4.0)).row(-1, named=True)
    assert row["ret_1"] == -row["ret_prev"] < -3
    assert row["ret_5"] == row["ret_60"] == row["ret_session"] == 0
    assert row["rsi_14"] == pytest.approx((13 / 14 - 1) / (13 / 14 + 1))
    assert (row["channel_60"], row["bar_place"]) == (-1, -1)
    # products 0 and -16, squares 16 and 16; weights 1 and 59/61
    assert row["persistence"] == pytest.approx(-16 / (16 + 16 * 59 / 61))


def test_place_in_range_and_channel() -> None:
    bars = still_then(4.0, -1.0, high=[100.0] * 22 + [104.0, 105.0], low=[100.0] * 22 + [100.0, 101.0])
    row = build_default(bars).row(-1, named=True)
    assert row["bar_place"] == 0  # 103 in 101 ... 105
    assert row["channel_60"] == 0.5  # 103 in 100 ... 104


def test_a_channel_forgets_what_is_older_than_its_length() -> None:
    bars = bars_of(np.concatenate([[100.0, 200.0], np.tile([110.0, 111.0], 150)]))
    channel = build_default(bars)["channel_60"].to_numpy()
    # bar 0 is in the last 60 up to bar 59, bar 1 up to bar 60
    assert channel[59:62].tolist() == pytest.approx([-1 + 2 * 11 / 100, -1, 1])
    slow = build_default(bars)["channel_240"].to_numpy()
    assert slow[239:242].tolist() == pytest.approx([-1 + 2 * 11 / 100, -1, 1])


def test_the_session_gap_stays_for_the_session_and_is_no_step() -> None:
    session = [0] * 22 + [1] * 3
    close = [100.0] * 21 + [101.0, 110.0, 110.0, 110.0]
    open_ = [100.0] * 22 + [109.0, 110.0, 110.0]
    frame = build_default(bars_of(close, open=open_, session=session))
    # the gap of 8 is left out of the volatility: bodies 1 and 1 with ranges 1 and 1 are all there is
    keep = 239 / 241
    v240 = math.sqrt((1 + 1 / (4 * math.log(2))) / 2 * (1 + keep) * weight(240, 23))
    expected = soft(8 / v240 / math.sqrt(240))
    assert frame["gap"].to_list()[-4:] == pytest.approx([0, expected, expected, expected])
    assert frame["ret_1"][22] > 9.5  # the move of 9 is against a bar's 0.4
    # since the open at 109: a move of 1, with squares of 1
    v60 = math.sqrt((1 + 1 / (4 * math.log(2))) / 2 * (1 + 59 / 61) * weight(60, 23))
    assert frame["ret_session"][22] == pytest.approx(soft(1 / math.sqrt(1 + v60**2)))


def test_where_each_session_is_one_bar_the_gap_is_risk() -> None:
    close = 100.0 + np.arange(30.0) * 3
    frame = build_default(bars_of(close, open=close, session=np.arange(30)))
    # moves of 3 that are all gap, from the second session on
    v60 = math.sqrt(9 / 2 * (1 - (59 / 61) ** 29 * weight(60, 30)))
    assert frame["ret_1"][-1] == pytest.approx(soft(3 / v60))
    assert frame["ret_session"][-1] == 0  # no trade but at the open


def test_volume_columns() -> None:
    bars = still_then(0.0, volume=[10.0] * 22 + [30.0])
    row = build_default(bars).row(-1, named=True)
    mean_240 = 10 + 20 * weight(240, 23)
    mean_20 = 10 + 20 * weight(20, 23)
    assert row["volume_surprise"] == pytest.approx(math.log((30 / mean_240 + 0.1) / 1.1))
    assert row["volume_trend"] == pytest.approx(math.log((mean_20 / mean_240 + 0.1) / 1.1))


def test_vwap_is_of_the_session_and_weighs_typical_prices_by_volume() -> None:
    session = [0] * 22 + [1] * 3
    close = [100.0] * 22 + [100.0, 103.0, 103.0]
    bars = bars_of(
        close, session=session, high=[100.0] * 22 + [100.0, 106.0, 103.0], volume=[99.0] * 22 + [10.0, 30.0, 0.0]
    )
    frame = build_default(bars)
    # typical prices 100 and (106 + 100 + 103) / 3 = 103, weights 10 and 30
    vwap = (10 * 100 + 30 * 103) / 40
    per_bar = (9 + 36 / (4 * math.log(2))) / 2
    v60 = math.sqrt(per_bar * weight(60, 24))
    assert frame["vwap_gap"][22] == 0
    assert frame["vwap_gap"][23] == pytest.approx(soft((103 - vwap) / math.sqrt(9 + v60**2)))
    plain = build_default(bars.with_columns(volume=pl.lit(0.0)))
    assert plain["vwap_gap"][23] == pytest.approx(soft((103 - 101.5) / math.sqrt(9 + v60**2)))


def test_calendar_columns() -> None:
    bars = bars_of(
        [100.0] * 24,
        minute_of_session=[*range(20), 0, 360, 720, 1379],
        minutes_to_close=[*range(1380, 1360, -1), 1380, 1020, 60, 0],
        session=[0] * 24,
        days_to_expiry=[None] * 20 + [98, 120, 53, 3],
    )
    frame = build_default(bars).tail(4)
    assert frame["tod_sin"].to_list()[:3] == pytest.approx([0, 1, 0], abs=1e-12)
    assert frame["tod_cos"].to_list()[:3] == pytest.approx([1, 0, -1], abs=1e-12)
    assert frame["to_close"].to_list() == pytest.approx([math.exp(-23), math.exp(-17), math.exp(-1), 1])
    assert frame["dow_sin"].to_list() == pytest.approx([math.sin(2 * math.pi / 7)] * 4)  # a Monday
    assert frame["dow_cos"].to_list() == pytest.approx([math.cos(2 * math.pi / 7)] * 4)
    assert frame["to_roll"].to_list() == [1, 1, 0.5, 0]
    assert build_default(bars.with_columns(days_to_expiry=None))["to_roll"].to_list()[-4:] == [0] * 4


def test_no_two_minutes_of_a_day_without_a_break_share_their_time() -> None:
    bars = bars_of(np.full(1440 + 20, 100.0), minute_of_session=[0] * 20 + list(range(1440)))
    clock = build_default(bars).select("tod_sin", "tod_cos").tail(1440).to_numpy().round(9)
    assert len(np.unique(clock, axis=0)) == 1440


# Every column against its definition, bar by bar, in plain sums.


def exponential(values: np.ndarray, span: float) -> float:
    """Normalised exponential mean of all values, newest last."""
    weights = (1 - 2 / (span + 1)) ** np.arange(len(values))[::-1]
    return float(np.sum(weights * values) / np.sum(weights))


def recursive(values: np.ndarray, gain: float) -> np.ndarray:
    """Exponential average that starts from the first value."""
    out = [float(values[0])]
    for value in values[1:]:
        out.append(out[-1] + gain * (float(value) - out[-1]))
    return np.array(out)


def wilder_rsi(moves: np.ndarray, bars: int) -> float:
    """RSI 0 ... 100 (Wilder, New Concepts in Technical Trading Systems, 1978), averages started from the first move."""
    up = recursive(np.maximum(moves, 0), 1 / bars)[-1]
    down = recursive(np.maximum(-moves, 0), 1 / bars)[-1]
    return 50.0 if up + down == 0 else 100 - 100 / (1 + up / down) if down else 100.0


def by_definition(bars: pl.DataFrame, t: int) -> dict[str, float]:
    """Features of bar t, from the bars up to t, as the documentation words them."""
    b = {name: bars[name].to_numpy()[: t + 1] for name in bars.columns}
    move, body, spread = b["close"] - b["close_prev"], b["close"] - b["open"], b["high"] - b["low"]
    opens = np.concatenate([[True], b["session"][1:] != b["session"][:-1]])
    was_open = np.concatenate([[False], opens[:-1]])
    step = np.where(opens & ~was_open, body, move)
    per_bar = (step**2 + spread**2 / (4 * np.log(2))) / 2
    v = {span: math.sqrt(exponential(per_bar, span)) for span in (20, 60, 240, 960, 2400)}
    level = np.cumsum(move)
    s = int(np.flatnonzero(opens)[-1])
    since = np.concatenate([body[s : s + 1], move[s + 1 :]])
    session_unit = math.sqrt(np.sum(since**2) + v[60] ** 2)
    way = np.cumsum(since)
    typical = way + (b["high"][s:] + b["low"][s:] + b["close"][s:]) / 3 - b["close"][s:]
    volume = b["volume"][s:]
    vwap = np.sum(typical * volume) / np.sum(volume) if np.sum(volume) else np.mean(typical)
    macd = recursive(level, 2 / 13) - recursive(level, 2 / 27)
    v240_then = math.sqrt(exponential(per_bar[: s + 1], 240))
    gap = b["open"][s] - b["close_prev"][s]

    def units(x: float, unit: float) -> float:
        return soft(x / unit) if unit else 0.0

    def over(n: int, span: int) -> float:
        n = min(n, t)
        return units(float(np.sum(move[t + 1 - n :])), v[span] * math.sqrt(n))

    def channel(n: int) -> float:
        last = level[-n:]
        return 0.0 if last.max() == last.min() else 2 * (level[t] - last.min()) / (last.max() - last.min()) - 1

    def log_ratio(x: float, y: float) -> float:
        return math.log((x / y + 0.1) / 1.1) if y else 0.0

    mean_volume = exponential(b["volume"], 240)
    day = bars["session"][t].isoweekday()
    minute = int(b["minute_of_session"][t])
    return {
        "ret_1": units(move[t], v[60]),
        "ret_prev": units(move[t - 1], v[60]),
        "ret_5": over(5, 60),
        "ret_15": over(15, 60),
        "ret_60": over(60, 60),
        "ret_240": over(240, 240),
        "ret_session": units(way[-1], session_unit),
        "gap": units(gap, v240_then * math.sqrt(240)),
        "vol_fast": log_ratio(v[20], v[240]),
        "vol_slow": log_ratio(v[240], v[2400]),
        "range": units(spread[t], v[60]),
        "bar_place": 2 * (b["close"][t] - b["low"][t]) / spread[t] - 1 if spread[t] else 0.0,
        "channel_60": channel(60),
        "channel_240": channel(240),
        "volume_surprise": log_ratio(b["volume"][t], mean_volume),
        "volume_trend": log_ratio(exponential(b["volume"], 20), mean_volume),
        "vwap_gap": units(way[-1] - vwap, session_unit),
        "rsi_14": wilder_rsi(move, 14) / 50 - 1,
        "macd": units(macd[-1], v[60]),
        "macd_hist": units(macd[-1] - recursive(macd, 0.2)[-1], v[60]),
        "ema_gap_960": units(level[t] - recursive(level, 2 / 961)[-1], v[960] * math.sqrt(960)),
        "persistence": exponential(step * np.concatenate([[0], step[:-1]]), 60) / exponential(step**2, 60),
        "tod_sin": math.sin(2 * math.pi * minute / 1440),
        "tod_cos": math.cos(2 * math.pi * minute / 1440),
        "to_close": math.exp(-b["minutes_to_close"][t] / 60),
        "dow_sin": math.sin(2 * math.pi * day / 7),
        "dow_cos": math.cos(2 * math.pi * day / 7),
        "to_roll": min(max(bars["days_to_expiry"][t] - 8, 0), 90) / 90,
    }


@pytest.mark.parametrize(("seed", "session_bars"), [(1, 50), (2, 7), (3, 1), (4, 2), (5, 1000)])
def test_every_column_is_what_its_text_says(seed: int, session_bars: int) -> None:
    bars = random_bars(seed, 700, session_bars=session_bars).with_columns(days_to_expiry=100 - pl.int_range(700) // 5)
    frame = build_default(bars)
    for t in (20, 21, 59, 60, 61, 100, 239, 240, 241, 350, 399, 400, 699):
        expected = by_definition(bars, t)
        assert list(expected) == list(FEATURES)
        for name, value in expected.items():
            assert frame[name][t] == pytest.approx(value, rel=1e-9, abs=1e-9), (name, t)


# Laws.

odd_futures: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "nan": lambda late: late.with_columns(pl.lit(math.nan).alias(name) for name in PRICES),
    "huge": lambda late: late.with_columns(pl.lit(1e30).alias(name) for name in PRICES),
    "huge and below": lambda late: late.with_columns(pl.lit(-1e30).alias(name) for name in PRICES),
    "another market": lambda late: late.with_columns((pl.col(name) * 3 - 1000).alias(name) for name in PRICES),
    "none": lambda late: late.head(0),
}
RAW = ("open", "high", "low", "close", "close_prev")
ADJUSTED = ("open_adj", "high_adj", "low_adj", "close_adj")
PRICES = (*RAW, *ADJUSTED, "volume")


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    length=st.integers(30, 400),
    session_bars=st.sampled_from([1, 2, 13, 100, 1000]),
    share=st.floats(0.05, 0.98),
    future=st.sampled_from(sorted(odd_futures)),
)
def test_no_row_sees_the_bars_after_it(seed: int, length: int, session_bars: int, share: float, future: str) -> None:
    bars = random_bars(seed, length, session_bars=session_bars)
    seen = max(1, int(length * share))
    other = pl.concat([bars.head(seen), odd_futures[future](bars.tail(length - seen))])
    np.testing.assert_array_equal(built(other)[:seen], built(bars)[:seen])  # to the last bit


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    factor=st.sampled_from([1e-4, 0.01, 1 / 3, 7.0, 1e4]),
    shift=st.floats(-1e5, 1e5),
)
def test_neither_unit_nor_level_of_the_price_shows(seed: int, factor: float, shift: float) -> None:
    bars = random_bars(seed, 300)
    moved = bars.with_columns((pl.col(name) * factor + shift * factor) for name in (*RAW, *ADJUSTED))
    np.testing.assert_allclose(built(moved), built(bars), rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 10_000), factor=st.sampled_from([1e-6, 0.01, 3.0, 1e6]))
@settings(max_examples=15)
def test_the_unit_of_volume_does_not_show(seed: int, factor: float) -> None:
    bars = random_bars(seed, 300)
    np.testing.assert_allclose(built(bars.with_columns(pl.col("volume") * factor)), built(bars), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10_000), roll=st.integers(1, 299), basis=st.floats(-500, 500))
@settings(max_examples=25)
def test_a_roll_does_not_show(seed: int, roll: int, basis: float) -> None:
    whole = random_bars(seed, 300)
    is_new = pl.int_range(300) >= roll
    rolled = whole.with_columns(
        *(pl.col(name) + pl.when(is_new).then(basis).otherwise(0.0) for name in RAW),
        contract=pl.when(is_new).then(pl.lit("B")).otherwise(pl.lit("A")),
    )
    np.testing.assert_allclose(built(rolled), built(whole), rtol=1e-7, atol=1e-7)


@given(seed=st.integers(0, 10_000), anchor=st.floats(-1e6, 1e6), session_bars=st.sampled_from([1, 13, 100]))
@settings(max_examples=25)
def test_where_the_shadow_price_is_anchored_does_not_show(seed: int, anchor: float, session_bars: int) -> None:
    bars = random_bars(seed, 300, session_bars=session_bars)
    moved = bars.with_columns((pl.col(name) + anchor) for name in ADJUSTED)
    np.testing.assert_allclose(built(moved), built(bars), rtol=1e-7, atol=1e-7)


def test_features_reach_over_a_roll_on_the_shadow_price_whatever_the_basis() -> None:
    """Two markets that differ in the level of their second contract alone, by the real preparation of a front."""
    rows = {basis: built(bars_frame(front_series(rolling(basis), spec_for("ES")))) for basis in (0.0, 40.0, -3000.0)}
    np.testing.assert_allclose(rows[40.0], rows[0.0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rows[-3000.0], rows[0.0], rtol=1e-9, atol=1e-9)


def test_a_later_roll_changes_no_earlier_feature() -> None:
    front = front_series(rolling(40.0), spec_for("ES"))
    row = int(np.searchsorted(front.ts_ns, front.rolls[0].ts_ns))
    alone = front_series(dataclasses.replace(rolling(40.0), tables=rolling(40.0).tables[:1]), spec_for("ES"))
    assert 100 < row < len(alone.ts_ns)
    np.testing.assert_array_equal(built(bars_frame(front))[:row], built(bars_frame(alone))[:row])


def test_features_made_run_by_run_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the precision of a double, although every run begins from nothing 48,000 bars before it."""
    monkeypatch.setattr(features, "CHUNK_BARS", 30_000)
    bars = random_bars(3, 130_000, session_bars=1380)
    runs = chunks(bars["session"].to_physical().to_numpy())
    assert [start for _, start, _ in runs] == [0, 30_360, 60_720, 91_080, 121_440]
    assert runs[-1] == (121_440 - 48_000, 121_440, 130_000)
    parts = [build_default(bars[needed:stop])[start - needed :] for needed, start, stop in runs]
    np.testing.assert_allclose(pl.concat(parts).to_numpy(), built(bars), rtol=1e-9, atol=1e-9)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 100), st.integers(0, 60))
def test_runs_cover_all_bars_cut_no_session_and_know_no_later_bar(sizes: list[int], length: int, less: int) -> None:
    trade_day = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "CHUNK_BARS", length)
        runs = chunks(trade_day)
        earlier = chunks(trade_day[: max(1, len(trade_day) - less)])
    assert [runs[0][1], *(stop for _, _, stop in runs)] == [*(start for _, start, _ in runs), len(trade_day)]
    opens = {0, *(np.flatnonzero(np.diff(trade_day)) + 1).tolist()}
    assert all(start in opens and needed <= start < stop for needed, start, stop in runs)
    assert [start for _, start, _ in earlier] == [start for _, start, _ in runs][: len(earlier)]


def flat(length: int = 400) -> pl.DataFrame:
    return bars_of(np.full(length, 100.0), session=np.arange(length) // 100)


def flat_between_moves() -> pl.DataFrame:
    """A jump, two weeks of minutes without any move, a tick, a bar with a range and no move, a jump."""
    close = np.concatenate([[100.0] * 30, np.full(14_000, 150.0), [150.25] * 50, [150.25], [90.0] * 20])
    high = close.copy()
    high[-21] = 150.5
    bars = bars_of(close, session=np.arange(len(close)) // 1380)
    return bars.with_columns(high=np.maximum(bars["high"].to_numpy(), high))


def random_clock() -> pl.DataFrame:
    minute = np.sort(np.random.default_rng(1).integers(0, SESSION_MINUTES, 400))
    return random_bars(1, 400, session_bars=400).with_columns(
        minute_of_session=pl.Series(minute.astype(np.int32)),
        minutes_to_close=pl.Series((SESSION_MINUTES - minute).astype(np.int32)),
    )


def crude_oil() -> pl.DataFrame:
    """Closes of CL around 2020-04-20, which settled at -37.63, among days of 20 dollars."""
    close = [20.0 + 0.1 * (i % 7) for i in range(30)] + [18.27, -37.63, 10.01, 13.78] + [15.0] * 5
    return bars_of(close, session=np.arange(39))


odd_markets: dict[str, Callable[[], pl.DataFrame]] = {
    "stands still": flat,
    "still for long between moves": flat_between_moves,
    "no volume": lambda: random_bars(1, 400).with_columns(volume=pl.lit(0.0)),
    "one trade": lambda: random_bars(1, 400).with_columns(volume=(pl.int_range(400) == 200).cast(pl.Float64)),
    "tiny volume": lambda: random_bars(1, 400).with_columns(pl.col("volume") * 1e-12),
    "sessions of one bar": lambda: random_bars(1, 400, session_bars=1),
    "first session of one bar": lambda: random_bars(1, 400).with_columns(
        session=pl.when(pl.int_range(400) == 0).then(pl.col("session").dt.offset_by("-3d")).otherwise("session")
    ),
    "irregular": random_clock,
    "negative prices": crude_oil,
    "all day": lambda: random_bars(1, 4000, session_bars=1440).with_columns(
        minutes_to_close=1440 - pl.col("minute_of_session")
    ),
    "huge jump": lambda: bars_of([100.0] * 50 + [1e9] * 50),
    "huge prices": lambda: random_bars(1, 400, tick=1e7),
    "tiny prices": lambda: random_bars(1, 400, tick=1e-9),
    "closes only": lambda: with_shadow(random_bars(1, 400).with_columns(open="close", high="close", low="close")),
    "no contract": lambda: random_bars(1, 400).with_columns(days_to_expiry=None),
}


@pytest.mark.parametrize("name", odd_markets)
def test_columns_are_finite_and_bounded_in_any_market(name: str) -> None:
    frame = build_default(odd_markets[name]()).slice(WARM_UP_BARS)
    values = frame.cast(pl.Float32).to_numpy()
    assert np.isfinite(values).all()
    for column, limit in {**dict.fromkeys(UNIT_COLUMNS, LIMIT), **dict.fromkeys(ONE_COLUMNS, 1 + 1e-12)}.items():
        assert frame[column].abs().max() <= limit, column
    assert frame["persistence"].abs().max() <= 1.1
    for column in ("vol_fast", "vol_slow", "volume_surprise", "volume_trend"):
        assert math.log(0.1 / 1.1) - 1e-9 <= frame[column].min(), column
        assert frame[column].max() <= math.log((240 + 0.1) / 1.1), column


def test_a_market_that_stands_still_shows_its_clock_only() -> None:
    frame = build_default(flat()).slice(WARM_UP_BARS)
    clock = ("tod_sin", "tod_cos", "to_close", "dow_sin", "dow_cos", "to_roll")
    assert not frame.drop(clock).to_numpy().any()
    assert all(frame[name].n_unique() > 1 for name in clock)


def test_a_long_calm_does_not_blow_up_the_first_tick_after_it() -> None:
    frame = build_default(flat_between_moves())
    tick = 30 + 14_000
    calm = frame.slice(tick - 500, 500).select(UNIT_COLUMNS)
    assert (
        abs(calm.to_numpy()).max() < 1e-5
    )  # nothing is left of the jump ten days ago, and no rounding noise in its place
    assert frame["ret_1"][tick] == pytest.approx(soft(1 / math.sqrt(10.8854 / 16 * 2 / 61)), rel=1e-3)


def test_the_past_fades() -> None:
    """A history that begins later gives the same features once the longest mean has forgotten what was before."""
    bars = random_bars(8, 20_000, session_bars=1380)
    whole, late = built(bars)[-500:], built(bars.tail(16_000))[-500:]
    np.testing.assert_allclose(late, whole, atol=2e-4)
    names = [i for i, name in enumerate(FEATURES) if name not in ("vol_slow", "ema_gap_960")]
    late = built(bars.slice(20_000 - 1380 * 3 - 680))[-500:]  # from the open of a session, three sessions before
    np.testing.assert_allclose(late[:, names], whole[:, names], atol=1e-3)


# The frame.


def two_contracts() -> FrontSeries:
    """ESZ3 trades more on 2023-12-11; the next session is ESH4's, though ESH4 had bars before."""
    first, second = minutes("2023-12-11T15:00", 3), minutes("2023-12-12T15:00", 3)
    old = table("ESZ3", first + second, [4600.0, 4601.0, 4602.0, 4603.0, 4604.0, 4605.0], 10.0)
    new = table("ESH4", first + second, [4650.0, 4651.0, 4652.0, 4653.5, 4654.5, 4655.5], 20.0)
    loaded = Loaded("ES.FUT", "ES", "parent", (old, new), (), (), "f")
    return front_series(loaded, spec_for("ES"))


def test_the_frame_has_the_columns_it_promises() -> None:
    series = two_contracts()
    frame = bars_frame(series)
    assert frame.columns == [
        "ts", "known_at", "open", "high", "low", "close", "volume", "contract", "session", "minute_of_session",
        "minutes_to_close", "close_prev", "days_to_expiry", "open_adj", "high_adj", "low_adj", "close_adj",
    ]  # fmt: skip
    assert frame.schema["ts"] == frame.schema["known_at"] == pl.Datetime("ns", "UTC")
    assert frame.schema["session"] == pl.Date
    assert all(frame.schema[name] == pl.Float64 for name in PRICES)
    assert frame.null_count().sum_horizontal()[0] == 0
    assert frame["contract"].to_list() == ["ESZ3"] * 3 + ["ESH4"] * 3
    assert frame["close"].to_list() == [4600, 4601, 4602, 4653.5, 4654.5, 4655.5]
    # the first bar of ESH4 follows ESH4's own close of the day before
    assert frame["close_prev"].to_list() == [4599.75, 4600, 4601, 4652, 4653.5, 4654.5]
    assert [str(day) for day in frame["session"].unique().sort()] == ["2023-12-11", "2023-12-12"]
    # 15:00 UTC is 09:00 in Chicago, 16 hours after the open and 7 before the close
    assert frame["minute_of_session"][0] == 16 * 60
    assert frame["minutes_to_close"][0] == 7 * 60
    assert (frame["known_at"] - frame["ts"]).dt.total_seconds().to_list() == [60] * 6
    # third Fridays: 2023-12-15 and 2024-03-15
    assert frame["days_to_expiry"].to_list() == [4] * 3 + [94] * 3


def test_days_to_expiry_are_null_where_no_contract_is_named() -> None:
    series = dataclasses.replace(two_contracts(), expiry_day=(None, 19_797))
    assert bars_frame(series)["days_to_expiry"].to_list() == [None] * 3 + [94] * 3


def test_shadow_prices_of_the_frame_are_continuous_over_the_roll() -> None:
    series = two_contracts()
    frame = bars_frame(series)
    # On 2023-12-12 at 15:00 ESZ3 opens at 4602.75 and ESH4 at 4653.25: a basis of 50.5.
    assert (series.rolls[0].exit_e9, series.rolls[0].entry_e9) == (4_602_750_000_000, 4_653_250_000_000)
    assert frame["close_adj"].to_list() == [4600, 4601, 4602, 4603, 4604, 4605]
    for name in ("open", "high", "low", "close"):
        assert (frame[name] - frame[f"{name}_adj"]).to_list() == [0] * 3 + [50.5] * 3
    assert bars_frame(series, slice(2, 5)).equals(frame[2:5])
