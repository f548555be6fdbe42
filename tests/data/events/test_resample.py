"""Longer bars made of shorter ones."""

from dataclasses import replace

import numpy as np
import pytest

from data.market_files import DAY_NS, HOUR_NS, MINUTE_NS, ns
from tidewalk.core.errors import DataError
from tidewalk.data.bars import BarTable, validate
from tidewalk.data.events.bar_rule import parse_bar_rule
from tidewalk.data.events.resample import resample

E9 = 10**9
NEVER = 2**62


def minutes(
    start_ns: int, lows: list[float], step_ns: int = MINUTE_NS, interval_ns: int | None = MINUTE_NS
) -> BarTable:
    """Bars at 100 with the lows given."""
    count = len(lows)
    ts_ns = start_ns + np.arange(count) * step_ns
    flat = np.full(count, 100 * E9)
    low = np.array([round(value * E9) for value in lows])
    return BarTable(
        "ESH4", 1, interval_ns, ts_ns, ts_ns + step_ns, flat.copy(), flat, low, flat, np.ones(count), has_volume=True
    )


def made(table: BarTable, text: str, end_ns: int = NEVER, sessions: str = "cme-globex") -> BarTable:
    tables, _ = resample([table], parse_bar_rule(text), sessions, [end_ns])
    validate(tables[0])
    return tables[0]


def test_an_hour_has_the_low_of_all_its_minutes() -> None:
    # Bug B22: the hour was given the low of its last minute, so stops inside it did not fire.
    lows = [100.0] * 60
    lows[10] = 90.0
    source = minutes(ns("2024-01-02 15:00"), lows)
    source.open_e9[0], source.close_e9[-1], source.high_e9[30] = 99 * E9, 99 * E9, 105 * E9
    hour = made(source, "1h")
    assert len(hour.ts_ns) == 1
    assert (hour.open_e9[0], hour.high_e9[0], hour.low_e9[0], hour.close_e9[0]) == (99 * E9, 105 * E9, 90 * E9, 99 * E9)
    assert hour.volume[0] == 60
    assert (hour.ts_ns[0], hour.known_ns[0], hour.interval_ns) == (
        ns("2024-01-02 15:00"),
        ns("2024-01-02 16:00"),  # B19: not visible before its end
        HOUR_NS,
    )


def test_a_bar_never_spans_the_break() -> None:
    # Globex is shut from 22:00 to 23:00 UTC in winter; a bar of 4 hours from 20:00 on would span it.
    source = minutes(ns("2024-01-02 19:00"), [100.0] * 180)
    later = minutes(ns("2024-01-02 23:00"), [100.0] * 60)
    both = replace(
        source,
        **{
            name: np.concatenate([getattr(source, name), getattr(later, name)])
            for name in ("ts_ns", "known_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume")
        },
    )
    four = made(both, "4h")
    assert (four.ts_ns == [ns("2024-01-02 19:00"), ns("2024-01-02 23:00")]).all()
    assert four.volume.tolist() == [180, 60]


def test_a_day_is_a_session() -> None:
    source = minutes(ns("2024-01-02 23:00"), [100.0] * 48, HOUR_NS, HOUR_NS)
    day = made(source, "1d")
    assert (day.ts_ns == [ns("2024-01-02 23:00"), ns("2024-01-03 23:00")]).all()
    assert day.known_ns[0] == ns("2024-01-03 23:00")
    assert day.interval_ns == DAY_NS


def test_the_unfinished_last_bar_is_dropped() -> None:
    source = minutes(ns("2024-01-02 15:00"), [100.0] * 63)
    tables, findings = resample([source], parse_bar_rule("1h"), "cme-globex", [int(source.known_ns[-1])])
    assert len(tables[0].ts_ns) == 1
    assert findings[-1].defect == "partial-end"
    assert len(made(source, "1h", ns("2024-01-02 17:00")).ts_ns) == 2
    with pytest.raises(DataError, match="--bars 4h: no bar is complete"):
        resample([source], parse_bar_rule("4h"), "cme-globex", [int(source.known_ns[-1])])


def test_a_first_bar_that_began_before_the_data_is_said() -> None:
    source = minutes(ns("2024-01-02 15:20"), [100.0] * 120)
    tables, findings = resample([source], parse_bar_rule("1h"), "cme-globex", [NEVER])
    assert tables[0].ts_ns[0] == ns("2024-01-02 15:00")
    assert "first bars of 1h begin 20 minutes before the data do, and lack that part" in [
        finding.text for finding in findings
    ]
    _, findings = resample(
        [minutes(ns("2024-01-02 15:00"), [100.0] * 120)], parse_bar_rule("1h"), "cme-globex", [NEVER]
    )
    assert not any("lack that part" in finding.text for finding in findings)


def test_the_close_of_a_session_completes_its_last_bar() -> None:
    source = minutes(ns("2024-01-02 21:00"), [100.0] * 60)
    assert len(made(source, "2h", int(source.known_ns[-1])).ts_ns) == 1


def test_the_spread_is_that_of_the_first_bar() -> None:
    source = replace(minutes(ns("2024-01-02 15:00"), [100.0] * 60), open_spread_e9=np.arange(60) + 5)
    hour = made(source, "1h")
    assert hour.open_spread_e9 is not None
    assert hour.open_spread_e9.tolist() == [5]


def test_the_same_length_changes_nothing() -> None:
    source = minutes(ns("2024-01-02 15:00"), [100.0] * 5)
    assert made(source, "1m") is source


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (minutes(ns("2024-01-02 15:00"), [100.0] * 9), "30s", r"--bars 30s: cannot be made of bars of 60 s"),
        (minutes(ns("2024-01-02 15:00"), [100.0] * 9), "90s", r"--bars 90s: cannot be made of bars of 60 s"),
        (minutes(ns("2024-01-02 15:00"), [100.0] * 9), "tick:5", r"--bars tick:5: needs files of trades"),
        (minutes(ns("2024-01-02 15:00"), [100.0] * 9, 7, None), "1h", r"--bars 1h: the files hold irregular bars"),
        (minutes(ns("2024-01-02 15:00:30"), [100.0] * 9), "2m", r"lies in two bars of 120 s"),
    ],
)
def test_bars_that_cannot_be_made_are_refused(table: BarTable, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        resample([table], parse_bar_rule(text), "cme-globex", [NEVER])
