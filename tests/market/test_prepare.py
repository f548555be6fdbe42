"""From bars to a market: moves within the contract held, flags, rolls, prices off the tick grid."""

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import MINUTE_NS, bar, dbn, mapped, ns, put
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import BarTable, Definition, Loaded
from tidewalk.data.contracts.rolls import FrontSeries, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig
from tidewalk.market.device import CLOSING, GAP, LAST_OF_SESSION, ROLL, TRADABLE, MarketData
from tidewalk.market.features import FEATURES
from tidewalk.market.prepare import Prepared, SeriesConfig, flags, moves, prepare, spec_of

ES = spec_for("ES")
QUARTER_E9 = 250_000_000
MONDAY, TUESDAY = "2024-03-11", "2024-03-12"


def table(contract: str, ts_ns: list[int], open_: list[float], *, minutes: int | None = 1) -> BarTable:
    """Bars that close a quarter above their open; `minutes` None: irregular bars stamped at their end."""
    open_e9 = np.array([round(price * 10**9) for price in open_], np.int64)
    ts = np.array(ts_ns, np.int64)
    interval_ns = None if minutes is None else minutes * MINUTE_NS
    prices = (open_e9, open_e9 + QUARTER_E9, open_e9, open_e9 + QUARTER_E9)
    return BarTable(contract, 1, interval_ns, ts, ts + (interval_ns or 1), *prices, np.full(len(ts), 10.0), True)


def series(*tables: BarTable, root: str = "ES") -> FrontSeries:
    symbology = "parent" if len(tables) > 1 else "raw"
    return front_series(Loaded(f"{root}.FUT", root, symbology, tables, (), (), "f"), spec_for(root))


def minutes_from(text: str, *offsets: int) -> list[int]:
    return [ns(text) + offset * MINUTE_NS for offset in offsets]


# A market of ten bars, by hand.

ESH4_OPEN = (5100.0, 5101.0, 5100.5, 5102.25, 5103.0)
ESM4_OPEN = (5170.0, 5169.0, 5171.5, 5171.5, 5172.0)
ESH4_AT_ROLL = 5110.5


def ten_bars() -> bytes:
    """Monday's ESH4 while ESM4 trades twice as much 60 points above; on Tuesday the front is ESM4."""
    monday, tuesday = (minutes_from(f"{day} 14:30", *range(5)) for day in (MONDAY, TUESDAY))
    rows = [bar(100, ts, price, 10) for ts, price in zip(monday, ESH4_OPEN, strict=True)]
    rows += [bar(200, ts, price + 60, 20) for ts, price in zip(monday, ESH4_OPEN, strict=True)]
    rows += [bar(200, ts, price, 30) for ts, price in zip(tuesday, ESM4_OPEN, strict=True)]
    rows += [bar(100, tuesday[0], ESH4_AT_ROLL, 5)]
    always = ("2000-01-01", "2100-01-01")
    mappings = (mapped("ESH4", (*always, 100)), mapped("ESM4", (*always, 200)))
    return dbn(sorted(rows, key=lambda row: row[1]), mappings)


@pytest.fixture
def hand_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    put(tmp_path, "es.dbn", ten_bars())
    put(tmp_path, "body_features.py", 'def build(bars):\n    return bars.select(body=bars["close"] - bars["open"])\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])
    return prepare(DataConfig(tmp_path / "es.dbn", "ES.FUT"), SeriesConfig(features="body_features:build"))


def test_a_market_of_ten_bars(hand_made: Prepared) -> None:
    market = hand_made.market
    roll_and_last = TRADABLE | LAST_OF_SESSION | ROLL
    # ticks: -0.50, 1.75, 0.75, then ESH4 from 5103.00 to its own open of Tuesday, 5110.50; then ESM4 alone
    assert market.move_ticks.tolist() == [-2, 7, 3, 30, -4, 10, 0, 2, 0, 0]
    assert market.flags.tolist() == [1, 1, 1, 1 | CLOSING, roll_and_last, 1, 1, 1, CLOSING, LAST_OF_SESSION]
    # closes lie a tick above opens; ESM4's last close of Monday was 5163.25
    assert market.close_move_ticks.tolist() == [1, 4, -2, 7, 3, 28, -4, 10, 0, 2]
    assert market.session_id.tolist() == [0] * 5 + [1] * 5
    assert market.contract_id.tolist() == [0] * 5 + [1] * 5
    assert market.trade_day.tolist() == [19_793] * 5 + [19_794] * 5
    assert (market.open_e9 / 1e9).tolist() == [*ESH4_OPEN, *ESM4_OPEN]
    assert (market.exit_open_e9 / 1e9).tolist() == [*ESH4_OPEN, ESH4_AT_ROLL, *ESM4_OPEN[1:]]
    assert market.features.tolist() == [[0.25]] * 10
    for name, kind in (
        ("move_ticks", np.int32),
        ("flags", np.int32),
        ("session_id", np.int32),
        ("features", np.float32),
    ):
        assert getattr(market, name).dtype == kind


def test_the_market_says_what_it_was_made_of(hand_made: Prepared) -> None:
    info = hand_made.market.info
    assert (info.symbol, info.root, info.contracts) == ("ES.FUT", "ES", ("ESH4", "ESM4"))
    assert (info.tick_e9, info.multiplier, info.commission_usd, info.tick_value_usd) == (QUARTER_E9, 50, 2.25, 12.5)
    assert (info.sessions, info.interval_ns, info.feature_names, info.first_usable) == (
        "cme-equity",
        MINUTE_NS,
        ("body",),
        0,
    )
    assert info.rolls == (
        {
            "date": TUESDAY,
            "ts_ns": ns(f"{TUESDAY} 14:30"),
            "from": "ESH4",
            "to": "ESM4",
            "from_volume": 50.0,
            "to_volume": 100.0,
            "exit": ESH4_AT_ROLL,
            "entry": 5170.0,
            "basis": 59.5,
            "reason": "volume",
        },
    )
    assert info.fingerprint == hand_made.loaded.fingerprint
    assert not info.warnings


def test_a_roll_books_no_basis(hand_made: Prepared) -> None:
    """Long from Monday's last bar: what the two contracts paid, though the new one opens 67 points higher."""
    market = hand_made.market
    esh4 = ESH4_AT_ROLL - ESH4_OPEN[4]
    esm4 = ESM4_OPEN[4] - ESM4_OPEN[0]
    assert market.move_ticks[3:8].sum() * 0.25 == esh4 + esm4 == 9.5
    assert ESM4_OPEN[4] - ESH4_OPEN[4] == 69


def test_a_jump_of_the_series_before_the_roll_is_no_profit() -> None:
    """The 33 points of a continuous future that showed the new contract too early (QuantConnect/Lean issue 7868)."""
    days = (*minutes_from(f"{MONDAY} 14:30", 0, 1), *minutes_from(f"{TUESDAY} 14:30", 0, 1, 2))
    old = table("ESH4", list(days), [4030.25] * 5)
    new = dataclasses.replace(table("ESM4", list(days), [4063.25] * 5), volume=np.full(5, 20.0))
    rolled = series(old, new)
    assert rolled.contract_id.tolist() == [0, 0, 1, 1, 1]
    assert not moves(rolled, ES)[0].any()
    assert (flags(rolled, ES.sessions) & ROLL != 0).tolist() == [False, True, False, False, False]


def test_an_old_contract_without_bars_is_left_at_its_last_close() -> None:
    monday, tuesday = minutes_from(f"{MONDAY} 14:30", 0, 1), minutes_from(f"{TUESDAY} 14:30", 0, 1, 2)
    rolled = series(table("ESH4", monday, [5100.0, 5101.0]), table("ESM4", tuesday, [5160.0, 5161.0, 5162.0]))
    # from 5101.00 to ESH4's last close 5101.25
    assert moves(rolled, ES)[0].tolist() == [1, 4, 4, 0, 0]


# Flags.


def test_a_hole_longer_than_half_an_hour_inside_a_session_is_a_gap() -> None:
    # holes between end and start: 30 minutes (no gap), 31 minutes, the night
    stamps = [*minutes_from(f"{MONDAY} 14:30", 0, 1, 32, 64, 65), *minutes_from(f"{TUESDAY} 14:30", 0, 1, 2)]
    found = flags(series(table("ESH4", stamps, [5100.0] * 8)), ES.sessions)
    # bar 3 begins 31 minutes after bar 2 is complete; the decision of bar 1 fills at bar 2 and is marked at bar 3
    assert np.flatnonzero(found & GAP).tolist() == [1]
    assert np.flatnonzero(found & LAST_OF_SESSION).tolist() == [4, 7]
    assert np.flatnonzero(found & CLOSING).tolist() == [3, 6]
    assert np.flatnonzero(found & TRADABLE).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_last_chance_to_be_flat_is_the_last_scheduled_bar_and_all_after_it() -> None:
    # ES closes at 21:00 UTC on that day; a print seven minutes later belongs to the session still
    stamps = [*minutes_from(f"{MONDAY} 20:57", 0, 1, 2, 10), *minutes_from(f"{TUESDAY} 14:30", 0, 1, 2)]
    found = flags(series(table("ESH4", stamps, [5100.0] * 7)), ES.sessions)
    assert np.flatnonzero(found & LAST_OF_SESSION).tolist() == [3, 6]
    # the fills at 20:59 and at the print; on Tuesday, which ends early here, that of the last bar present
    assert np.flatnonzero(found & CLOSING).tolist() == [1, 2, 5]


def test_irregular_bars_have_no_gaps_because_their_start_is_not_known() -> None:
    stamps = minutes_from(f"{MONDAY} 14:30", 0, 100, 200, 300)
    assert not (flags(series(table("ESH4", stamps, [5100.0] * 4, minutes=None)), ES.sessions) & GAP).any()


def test_every_daily_bar_is_a_session_of_its_own() -> None:
    days = [ns(f"2024-03-{day} 00:00") for day in (11, 12, 13, 14)]
    found = flags(series(table("ESM4", days, [5100.0] * 4, minutes=1440)), ES.sessions)
    both = LAST_OF_SESSION | CLOSING
    assert found.tolist() == [both | TRADABLE, both | TRADABLE, both, LAST_OF_SESSION]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_bars_make_no_decision(count: int) -> None:
    few = series(table("ESH4", minutes_from(f"{MONDAY} 14:30", *range(count)), [5100.0] * count))
    with pytest.raises(DataError, match=rf"{count} bars? of ES: at least 3"):
        moves(few, ES)


# Prices off the grid.


def opens(prices_e9: list[int]) -> FrontSeries:
    made = series(table("ESH4", minutes_from(f"{MONDAY} 14:30", *range(len(prices_e9))), [5100.0] * len(prices_e9)))
    price_e9 = np.array(prices_e9, np.int64)
    return dataclasses.replace(made, open_e9=price_e9, exit_open_e9=price_e9)


@given(
    eighths=st.lists(st.integers(-(10**6), 10**6), min_size=3, max_size=30),
    tick_e9=st.sampled_from([1, 5, 50_000, 3_906_250, 15_625_000, QUARTER_E9, 10**9, 5 * 10**9]),
)
def test_moves_add_up_to_the_way_of_the_price_within_one_tick(eighths: list[int], tick_e9: int) -> None:
    prices = [eighth * tick_e9 // 8 for eighth in eighths]
    move_ticks, _ = moves(opens(prices), dataclasses.replace(ES, tick_e9=tick_e9))
    way_e9 = np.array(prices[2:], object) - prices[1]
    error_e9 = np.cumsum(move_ticks[:-2].astype(object)) * tick_e9 - way_e9
    assert all(abs(error) <= tick_e9 for error in error_e9)
    steps = np.diff(np.array(prices[1:], object))
    assert all(
        abs(move * tick_e9 - step) <= tick_e9 for move, step in zip(move_ticks[:-2].tolist(), steps, strict=True)
    )


@given(st.lists(st.integers(-(10**7), 10**7), min_size=3, max_size=30))
def test_on_the_grid_moves_are_exact(ticks: list[int]) -> None:
    move_ticks, findings = moves(opens([tick * QUARTER_E9 for tick in ticks]), ES)
    assert move_ticks.tolist() == [*np.diff(ticks[1:]).tolist(), 0, 0]
    assert not findings


def test_prices_are_rounded_to_the_nearest_tick_on_both_sides_of_zero() -> None:
    cents = [0, 0, -30, -10, 10, 30, -13, -12]  # in quarters: 0, 0, -1, 0, 0, 1, -1, 0
    assert moves(opens([cent * 10**7 for cent in cents]), ES)[0].tolist() == [-1, 1, 0, 1, -2, 1, 0, 0]


def test_prices_between_two_ticks_give_no_drift() -> None:
    """Halves rounded move by move would pay a long position a tick every second bar."""
    half = QUARTER_E9 // 2
    there_and_back = [5100 * 10**9 + half * (i % 2) for i in range(101)]
    assert abs(moves(opens(there_and_back), ES)[0].sum()) <= 1
    falling = [-half * i for i in range(101)]
    assert moves(opens(falling), ES)[0].sum() == pytest.approx(-50, abs=1)


def test_the_settlement_below_zero_of_crude_oil() -> None:
    """CL 18.27, -37.63, 10.01: long one contract of 1000 barrels loses 55,900 and then gains 47,640 USD."""
    cl = spec_for("CL")
    oil = opens([18_000_000_000, 18_270_000_000, -37_630_000_000, 10_010_000_000])
    move_ticks, findings = moves(oil, cl)
    assert (move_ticks * cl.tick_value_usd).tolist() == pytest.approx([-55_900, 47_640, 0, 0])
    assert not findings


@pytest.mark.parametrize(("off", "kind"), [(0, ""), (1, "note"), (2, "note"), (3, "warning"), (200, "warning")])
def test_more_than_one_percent_off_the_grid_is_a_warning_and_less_a_note(off: int, kind: str) -> None:
    prices = [5100 * 10**9 + (10**7 if i < off else 0) for i in range(200)]
    findings = moves(opens(prices), ES)[1]
    assert [finding.is_warning for finding in findings] == [kind == "warning"] * bool(off)
    for finding in findings:
        assert (
            f"{off} of 200 bars ({off / 200:.2%}) have prices off the tick of 0.25; fills are rounded" in finding.text
        )
        assert ("Adjusted prices, or another instrument" in finding.text) == (kind == "warning")
        assert (finding.defect, finding.count) == ("off-tick", off)


def test_any_of_the_four_prices_may_be_off_the_grid() -> None:
    on_grid = opens([5100 * 10**9] * 9)
    for name in ("open_e9", "high_e9", "low_e9", "close_e9"):
        price_e9 = getattr(on_grid, name).copy()
        price_e9[4] += 10**7
        assert moves(dataclasses.replace(on_grid, **{name: price_e9}), ES)[1][0].count == 1


def test_prices_of_a_ratio_adjusted_series_are_doubted() -> None:
    adjusted = [round((5100 + i % 9 / 4) * 0.98765 * 10**9) for i in range(50)]
    assert "Adjusted prices" in moves(opens(adjusted), ES)[1][0].text


def test_a_move_beyond_int32_is_refused_with_the_flag_to_change() -> None:
    with pytest.raises(DataError, match=r"A move of 3000000000 ticks of 1e-09 does not fit .* give the true --tick"):
        moves(opens([10**9, 10**9, 4 * 10**9]), dataclasses.replace(ES, tick_e9=1))


@pytest.mark.parametrize(("name", "value"), [("tick", 0.0), ("tick", -0.25), ("multiplier", 0.0), ("multiplier", 1e13)])
def test_sizes_that_make_no_contract_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"--{name} is .*; it must be"):
        SeriesConfig(**{name: value})  # type: ignore[arg-type]


# Specifications: flags, definitions in the data, the built-in table.


def with_definitions(*terms: tuple[int, float | None], root: str = "ES") -> Loaded:
    one = table(f"{root}H4", minutes_from(f"{MONDAY} 14:30", *range(30)), [5100.0] * 30)
    definitions = tuple(
        Definition(
            f"{root}H4", i, is_outright=True, tick_e9=tick_e9, multiplier=size, currency="EUR", expiration_ns=None
        )
        for i, (tick_e9, size) in enumerate(terms)
    )
    spread = Definition("A-B", 9, is_outright=False, tick_e9=5, multiplier=1.0, currency="", expiration_ns=None)
    return Loaded(f"{root}.FUT", root, "parent", (one,), (), (), "f", (*definitions, spread))


def test_definitions_in_the_data_go_before_the_built_in_table() -> None:
    spec, (finding,) = spec_of(with_definitions((QUARTER_E9, 50.0)), SeriesConfig())
    assert (spec.tick_e9, spec.multiplier, spec.currency, spec.commission_usd) == (QUARTER_E9, 50.0, "EUR", 2.25)
    assert (finding.defect, finding.is_warning) == ("definition", False)
    assert finding.text == "definitions in the data: tick 0.25, multiplier 50, as expected of ES"
    spec, (finding,) = spec_of(with_definitions((500_000_000, 25.0)), SeriesConfig())
    assert (spec.tick_e9, spec.multiplier) == (500_000_000, 25.0)
    assert finding.is_warning
    assert "where ES is known with tick 0.25 and multiplier 50: the definitions are used" in finding.text


def test_flags_go_before_definitions() -> None:
    spec, _ = spec_of(with_definitions((500_000_000, 25.0)), SeriesConfig(tick=0.05, multiplier=10.0))
    assert (spec.tick_e9, spec.multiplier) == (50_000_000, 10.0)
    spec, _ = spec_of(with_definitions((500_000_000, None)), SeriesConfig())
    assert (spec.tick_e9, spec.multiplier) == (500_000_000, 50.0)


def test_a_root_unknown_here_is_known_by_its_definitions() -> None:
    spec, _ = spec_of(with_definitions((10_000_000, 20.0), root="XYZ"), SeriesConfig())
    assert (spec.root, spec.tick_e9, spec.multiplier, spec.sessions) == ("XYZ", 10_000_000, 20.0, "utc-day")
    with pytest.raises(ConfigError, match=r"'XYZ' is not known.*--tick and --multiplier"):
        spec_of(with_definitions(root="XYZ"), SeriesConfig())


def test_a_definition_without_a_tick_says_nothing() -> None:
    spec, findings = spec_of(with_definitions((0, None)), SeriesConfig())
    assert (spec.tick_e9, spec.multiplier, findings) == (QUARTER_E9, 50.0, ())
    spec, _ = spec_of(with_definitions((0, None), (500_000_000, 25.0)), SeriesConfig())
    assert (spec.tick_e9, spec.multiplier) == (500_000_000, 25.0)


def test_definitions_that_differ_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"ES\.FUT: definitions of its contracts differ: tick 0\.25 and multiplier 5\.0, tick"
    ):
        spec_of(with_definitions((QUARTER_E9, 50.0), (QUARTER_E9, 5.0)), SeriesConfig())


def test_half_the_recorded_spread_is_in_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = with_definitions((QUARTER_E9, 50.0))
    quoted = dataclasses.replace(made.tables[0], open_spread_e9=np.array([1, 1, 2, 3, 1] * 6) * QUARTER_E9)
    for tables, half in (((quoted,), [0.5, 0.5, 1.0, 1.5, 0.5] * 6), (made.tables, None)):
        given_ = dataclasses.replace(made, tables=tables)
        monkeypatch.setattr("tidewalk.market.prepare.load_bars", lambda *_, given=given_: given)
        spread = prepare(DataConfig(Path(), "ES.FUT"), SeriesConfig()).market.half_spread_ticks
        assert (None if spread is None else spread.tolist()) == half


# Real files.


def prepared(path: Path, symbol: str, *, tz: str | None = None, closes: bool = False, **sizes: float) -> Prepared:
    data = DataConfig(path, symbol, tz=tz, bar_label="close" if closes else None)
    return prepare(data, SeriesConfig(**sizes))  # type: ignore[arg-type]


def chicago_trade_dates(ts_ns: np.ndarray) -> list[dt.date]:
    """Trade dates by the rule alone: seven hours after Chicago's clock, a week-end counted as Monday."""
    stamps = pl.Series(ts_ns).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone("America/Chicago")
    dates = stamps.dt.replace_time_zone(None).dt.offset_by("7h").dt.date()
    return [day + dt.timedelta(days=max(0, 7 - day.weekday()) if day.weekday() > 4 else 0) for day in dates.to_list()]


def dates(market: MarketData) -> list[dt.date]:
    return [dt.date(1970, 1, 1) + dt.timedelta(days=int(day)) for day in market.trade_day]


def check_any(made: Prepared) -> None:
    """What holds for every prepared market."""
    market, s = made.market, made.series
    assert np.isfinite(market.features).all()
    assert not market.move_ticks[-2:].any()
    assert (market.flags & TRADABLE != 0).tolist() == [True] * (market.num_bars - 2) + [False] * 2
    is_last = np.append(np.diff(market.trade_day) != 0, True)
    np.testing.assert_array_equal(market.flags & LAST_OF_SESSION != 0, is_last)
    np.testing.assert_array_equal(market.flags & ROLL != 0, np.append(np.diff(market.contract_id) != 0, False))
    assert (market.session_id.max(), len(s.rolls)) == (len(set(s.trade_day)) - 1, len(market.info.rolls))


def test_a_year_of_nasdaq_futures_has_a_session_per_trade_date(shared_data: Path) -> None:
    made = prepared(shared_data / "csv" / "nq_5min_2019_pacific.csv", "NQ", tz="America/Los_Angeles")
    check_any(made)
    market = made.market
    assert dates(market) == chicago_trade_dates(market.ts_ns)
    weekdays = [day for day in (dt.date(2019, 1, 1) + dt.timedelta(i) for i in range(365)) if day.weekday() < 5]
    shut = {dt.date(2019, 1, 1), dt.date(2019, 4, 19), dt.date(2019, 12, 25)}  # New Year, Good Friday, Christmas
    assert sorted(set(dates(market))) == sorted(set(weekdays) - shut)
    assert market.session_id[-1] + 1 == 261 - 3
    bars_in = dict(zip(*np.unique(market.trade_day, return_counts=True), strict=True))
    # 17:00 to 16:00 less the pause 15:15 to 15:30, on both sides of both changes of the clock
    for day in ("2019-03-08", "2019-03-11", "2019-11-01", "2019-11-04"):
        assert bars_in[np.datetime64(day, "D").astype(int)] == (23 * 60 - 15) // 5
    # the one hole is the halt of Globex on the evening of 2019-02-26
    holes = np.flatnonzero(market.flags & GAP) + 1
    assert [str(np.datetime64(int(made.series.known_ns[i]), "ns"))[:16] for i in holes] == ["2019-02-27T00:45"]
    assert "no volume column" in " ".join(market.info.notes)
    assert not market.features[:, [list(FEATURES).index(n) for n in ("volume_surprise", "volume_trend")]].any()


def test_the_december_roll_of_2013_pays_what_the_two_contracts_paid(shared_data: Path) -> None:
    made = prepared(shared_data / "dbn_built" / "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst", "ES.FUT")
    check_any(made)
    market = made.market
    old, new = ({int(ts): i for i, ts in enumerate(t.ts_ns)} for t in made.loaded.tables[:2])
    esz3, esh4 = made.loaded.tables[:2]
    assert (esz3.contract, esh4.contract) == ("ESZ3", "ESH4")
    # by hand: the session after the first one in which ESH4 trades more
    volume = [
        pl.DataFrame({"day": chicago_trade_dates(t.ts_ns), "v": t.volume}).group_by("day").sum() for t in (esz3, esh4)
    ]
    by_day = volume[0].join(volume[1], on="day", how="full", coalesce=True).fill_null(0).sort("day")
    crossed = by_day.filter(pl.col("v_right") > pl.col("v"))["day"][0]
    after = min(day for day in by_day["day"] if day > crossed)
    assert (crossed, after) == (dt.date(2013, 12, 18), dt.date(2013, 12, 19))
    assert [roll["date"] for roll in market.info.rolls] == [str(after)]
    assert market.info.rolls[0]["basis"] == -6.0
    # long one contract from 100 bars before the roll to 100 bars after it
    roll = int(np.flatnonzero(market.flags & ROLL)[0])
    entry, change, end = (int(market.ts_ns[i]) for i in (roll - 100, roll + 1, roll + 100))
    paid_e9 = esz3.open_e9[old[change]] - esz3.open_e9[old[entry]] + esh4.open_e9[new[end]] - esh4.open_e9[new[change]]
    assert market.move_ticks[roll - 101 : roll + 99].sum() * QUARTER_E9 == paid_e9
    spliced_e9 = esh4.open_e9[new[end]] - esz3.open_e9[old[entry]]
    assert paid_e9 - spliced_e9 == 6 * 10**9  # what a series glued together would have lost


def test_no_tick_bar_crosses_a_session(shared_data: Path) -> None:
    made = prepared(shared_data / "csv" / "es_tick-bars_2015-2016.csv", "ES", tz="UTC", closes=True)
    check_any(made)
    market, s = made.market, made.series
    assert s.interval_ns is None
    assert dates(market) == chicago_trade_dates(s.known_ns - 1) == chicago_trade_dates(s.ts_ns)
    assert not (market.flags & GAP).any()
    days = [dt.date(2015, 1, 1) + dt.timedelta(i) for i in range(731)]
    weekdays = {day for day in days if day.weekday() < 5}
    # New Year twice, Christmas twice (in 2016 kept on Monday), Good Friday of 2016; that of 2015 had a short session
    shut = {
        dt.date(2015, 1, 1),
        dt.date(2015, 12, 25),
        dt.date(2016, 1, 1),
        dt.date(2016, 3, 25),
        dt.date(2016, 12, 26),
    }
    assert set(dates(market)) == weekdays - shut


@pytest.mark.parametrize("root", ["ES", "CL", "ZN", "6E"])
def test_daily_bars_of_a_vendors_continuous_contract(shared_data: Path, root: str) -> None:
    made = prepared(shared_data / "csv" / f"databento_{root.lower()}.c.0_daily_2010-2026.csv", root)
    check_any(made)
    market = made.market
    assert "rolls are invisible" in " ".join(market.info.warnings)
    assert not market.info.rolls
    assert np.cumsum(market.move_ticks)[-3] == (market.open_e9[-1] - market.open_e9[1]) // market.info.tick_e9
    # the part-day of a Sunday shares the session of Monday
    sunday = np.flatnonzero(market.ts_ns // (86_400 * 10**9) % 7 == 3)
    assert len(sunday) > 700
    assert (market.session_id[sunday] == market.session_id[np.minimum(sunday + 1, market.num_bars - 1)]).mean() > 0.99


def test_negative_oil_prices_pass_with_a_warning(shared_data: Path) -> None:
    made = prepared(shared_data / "csv" / "databento_cl.c.0_daily_2010-2026.csv", "CL")
    day = np.flatnonzero(made.market.ts_ns == ns("2020-04-20"))[0]
    assert (made.series.close_e9[day], made.series.low_e9[day]) == (-2_670_000_000, -40_320_000_000)
    # opens 17.07, -3.01, 14.02: fills of the decisions two and one bars before
    assert made.market.move_ticks[day - 1 : day + 1].tolist() == [-2008, 1703]
    assert any("price of zero or less: 2 of" in text for text in made.market.info.warnings)
    assert np.abs(made.market.features).max() <= 10


def test_the_file_does_not_answer_to_a_name_that_it_does_not_hold(shared_data: Path) -> None:
    with pytest.raises(DataError, match=r"ES\.c\.0: not in .* \(did you mean ES\?\)"):
        prepared(shared_data / "csv" / "databento_es.c.0_daily_2010-2026.csv", "ES.c.0")


def test_a_quarter_century_of_daily_bars(shared_data: Path) -> None:
    path = shared_data / "csv" / "yahoo-es_daily_2000-2025_yahoo-multiheader.csv"
    with pytest.raises(
        DataError, match=r"row 346 .*do not enclose open and close, in 10 of 6136 rows.*--on-bad-bar drop"
    ):
        prepared(path, "ES")
    made = prepare(DataConfig(path, "ES", on_bad_bar="drop"), SeriesConfig())
    check_any(made)
    assert (made.market.flags & LAST_OF_SESSION != 0).all()
    assert "10 of 6136" in " ".join(made.market.info.warnings)


def test_a_market_that_never_closes_needs_its_sizes(shared_data: Path) -> None:
    path = shared_data / "csv" / "btc-perp_1min_2022-01.csv"
    with pytest.raises(ConfigError, match=r"'BTCUSDT' is not known.*--tick and --multiplier"):
        prepared(path, "BTCUSDT", tz="UTC", closes=True)
    made = prepared(path, "BTCUSDT", tz="UTC", closes=True, tick=0.1, multiplier=1.0)
    check_any(made)
    market = made.market
    assert market.info.sessions == "utc-day"
    assert set(np.unique(market.session_id, return_counts=True)[1][1:-1]) == {1440}
    assert not (market.flags & GAP).any()
    assert any("of 45031 bars (0.0" in note and "off the tick of 0.1" in note for note in market.info.notes)
    # the clock of a day without a break never says the same twice
    clock = market.features[1500:2940, [list(FEATURES).index(name) for name in ("tod_sin", "tod_cos")]]
    assert len(np.unique(clock.round(6), axis=0)) == 1440


def test_an_index_that_calls_itself_a_future_is_doubted(shared_data: Path) -> None:
    made = prepared(shared_data / "csv" / "ndx-index_1min_2026-01_2026-03_mislabelled-mnq.csv", "MNQ", tz="UTC")
    assert any("of 16422 bars (" in text and "another instrument" in text for text in made.market.info.warnings)
