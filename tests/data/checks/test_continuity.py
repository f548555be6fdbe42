"""What a front series lacks is counted and said; nothing is filled."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from data.market_files import DAY_NS, MINUTE_NS, ns
from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.checks.continuity import continuity_findings
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.rolls import FrontSeries, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig, load_bars

ES = spec_for("ES")


def table(
    ts_ns: np.ndarray, *, contract: str = "ESH4", interval_ns: int | None = MINUTE_NS, volume: float = 9
) -> BarTable:
    price_e9 = np.full(len(ts_ns), 4800 * 10**9)
    volumes = np.full(len(ts_ns), float(volume))
    return BarTable(contract, 1, interval_ns, ts_ns, ts_ns + (interval_ns or 1), *[price_e9] * 4, volumes, True)


def front(*tables: BarTable) -> tuple[Loaded, FrontSeries]:
    loaded = Loaded("ES.FUT", "ES", "parent" if len(tables) > 1 else "raw", tables, (), (), "f")
    return loaded, front_series(loaded, ES)


def findings(*tables: BarTable) -> dict[str, Finding]:
    return {finding.defect: finding for finding in continuity_findings(*front(*tables), ES.sessions)}


def session(day: str, minutes: int = 1380, missing: range = range(0)) -> np.ndarray:
    """Minutes of the Globex session that opens at 23:00 UTC on a winter day."""
    offsets = np.setdiff1d(np.arange(minutes), np.array(missing, int))
    return ns(f"{day} 23:00") + offsets * MINUTE_NS


def test_a_whole_session_lacks_nothing() -> None:
    assert not findings(table(np.concatenate([session("2024-01-02"), session("2024-01-03")])))


@pytest.mark.parametrize(("start", "interval_ns", "found"), [(0, MINUTE_NS, 1), (500, MINUTE_NS, 0), (0, None, 1)])
@pytest.mark.parametrize("factor", [3.0, 0.5])
def test_a_level_that_changes_for_good_is_doubted_and_a_misprint_is_another_matter(
    start: int, interval_ns: int | None, found: int, factor: float
) -> None:
    minutes = session("2024-01-02", 600)
    whole = table(minutes, interval_ns=interval_ns)
    stop = 502 if start else 600
    elsewhere = (np.arange(600) >= (start or 300)) & (np.arange(600) < stop)
    price_e9 = np.where(elsewhere, whole.close_e9 * factor, whole.close_e9).astype(np.int64)
    names = ("open_e9", "high_e9", "low_e9", "close_e9")
    moved = dataclasses.replace(whole, **dict.fromkeys(names, price_e9))
    steps = [one for one in continuity_findings(*front(moved), ES.sessions) if one.defect == "off-tick"]
    assert len(steps) == found
    if found:
        assert steps[0].is_warning
        assert f"ESH4 at 2024-01-03 04:00 UTC, from 4800 to {4800 * factor:g}: another scale" in steps[0].text


def test_missing_minutes_are_counted_by_contract_held() -> None:
    # In the week of the roll: ESM4 trades more in the second session and is held in the third.
    first = table(np.concatenate([session("2024-03-05", missing=range(5, 9)), session("2024-03-06")]), volume=90)
    later = np.concatenate([session("2024-03-06"), session("2024-03-07", missing=range(20, 23))])
    second = table(later, contract="ESM4", volume=99)
    found = findings(first, second)
    assert found["missing-minutes"].count == 7
    assert found["missing-minutes"].text.endswith("7 of 4140 (0.2%): ESH4 4, ESM4 3")
    assert "gap-in-session" not in found


def test_what_lies_before_and_after_the_data_is_not_missing() -> None:
    first, last = session("2024-01-02")[600:], session("2024-01-03", 500, missing=range(7, 9))
    found = findings(table(np.concatenate([first, last])))
    assert found["missing-minutes"].text.endswith("2 of 1280 (0.2%): ESH4 2")
    assert "missing-minutes" not in findings(table(np.concatenate([first, session("2024-01-03", 500)])))


@pytest.mark.parametrize(("hole", "is_long"), [(range(100, 130), False), (range(100, 131), True)])
def test_holes_of_more_than_half_an_hour_are_shown(hole: range, *, is_long: bool) -> None:
    found = findings(table(np.concatenate([session("2024-01-02", missing=hole), session("2024-01-03")])))
    assert ("gap-in-session" in found) == is_long
    if is_long:
        assert found["gap-in-session"].text.endswith("1, the longest 2024-01-03 00:40 to 01:11 UTC (31 min)")


def test_the_break_between_sessions_is_no_hole() -> None:
    weekend = np.concatenate([session("2024-01-04"), session("2024-01-07")])
    assert "gap-in-session" not in findings(table(weekend))


@pytest.mark.parametrize(("minutes", "is_short"), [(300, True), (1340, True), (1360, False), (1380, False)])
def test_data_that_end_inside_a_session(minutes: int, *, is_short: bool) -> None:
    stamps = [session("2024-01-02"), session("2024-01-03"), session("2024-01-07", minutes)]
    found = findings(table(np.concatenate(stamps)))
    assert ("partial-end" in found) == is_short
    if is_short:
        text = (
            f"the last session, 2024-01-08, ends {1380 - minutes:,} minutes before its close, "
            "earlier than any before it"
        )
        assert found["partial-end"].text == text


def test_a_product_that_always_stops_early_has_no_short_last_session() -> None:
    stamps = np.concatenate([session(f"2024-01-0{day}", 600) for day in (2, 3, 7)])
    assert "partial-end" not in findings(table(stamps))


def test_daily_bars_of_a_part_of_a_day() -> None:
    days = np.array([ns("2024-01-02") + i * DAY_NS for i in (0, 1, 2, 3, 5, 6, 7, 8)])
    volume = np.array([100.0, 100, 100, 100, 5, 100, 100, 12])
    daily = table(days, interval_ns=DAY_NS)
    loaded, series = front(BarTable(**{**vars(daily), "volume": volume}))
    texts = [finding.text for finding in continuity_findings(loaded, series, ES.sessions)]
    assert texts == [
        "daily bars of a Sunday evening only, counted with Monday's session: 1 of 8",
        "the last daily bar, 2024-01-10, has 12.0% of the usual volume: a part of a day",
    ]


def test_sessions_without_a_bar_are_named() -> None:
    days = [day for day in range(2, 30) if (day + 3) % 7 not in (1, 2) and day not in (10, 11)]
    found = findings(table(np.concatenate([session(f"2024-01-{day:02}") for day in days])))["missing-sessions"]
    # Sessions that open on the evenings of January 10 and 11 have the trade dates after them; the 15th is a short day.
    assert found.text.startswith("scheduled sessions without any bar: 2 of 2")
    assert found.text.endswith("2024-01-11, 2024-01-12")
    assert (found.count, found.is_warning) == (2, True)


def test_irregular_bars_and_bars_without_volume_say_nothing() -> None:
    assert not findings(table(session("2024-01-02", 50), interval_ns=None))
    days = np.array([ns("2024-01-02") + i * DAY_NS for i in range(6)])
    assert not findings(table(days, interval_ns=DAY_NS, volume=0))


def test_days_that_the_vendor_lost_are_found(shared_data: Path) -> None:
    loaded = load_bars(DataConfig(shared_data / "csv" / "databento_es.c.0_daily_2010-2026.csv", "ES"))
    found = {f.defect: f for f in continuity_findings(loaded, front_series(loaded, ES), ES.sessions)}
    assert found["missing-sessions"].text.endswith("2014-06-12, 2014-06-13, 2014-09-23, 2014-09-24, 2014-09-25, ...")
    assert not found["missing-sessions"].is_warning
