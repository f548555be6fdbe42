"""The main job on real market files, against counts made by hand from the calendar and from the contracts' own bars."""

import dataclasses
import datetime as dt

import numpy as np
import pytest

from tidewalk.agents.dqn import DQNConfig
from tidewalk.core.errors import DataError
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.market.windows import WindowConfig
from tidewalk.run import loop
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.store import layout, results
from tidewalk.train.population import TrainConfig


def study(out, months, **data) -> RunConfig:
    train, val, test, step = months
    return RunConfig(
        data=DataConfig(**data),
        windows=WindowConfig(train_months=train, val_months=val, test_months=test, step_months=step),
        train=TrainConfig(epochs=1, max_steps_per_epoch=5, seeds=1),
        dqn=DQNConfig(hidden=(16,)),
        output=OutputConfig(out=out, quiet=True),
    )


def summary_of(config: RunConfig) -> tuple[dict, layout.RunFolder]:
    run = layout.open_run(loop.train(config))
    assert run.report.stat().st_size > 100_000
    return results.read_summary(run), run


def weekdays(year: int, month: int, closed: tuple[int, ...] = ()) -> int:
    """Weekdays of a month less the days on which the exchange does not open."""
    first = dt.date(year, month, 1)
    days = (first + dt.timedelta(days=n) for n in range(31))
    return sum(day.month == month and day.weekday() < 5 and day.day not in closed for day in days)


def test_a_year_of_nq_five_minute_bars_in_pacific_time(shared_data, tmp_path):
    path = shared_data / "csv" / "nq_5min_2019_pacific.csv"
    summary, _ = summary_of(study(tmp_path / "nq", (3, 1, 1, 3), data_dir=path, symbol="NQ", tz="America/Los_Angeles"))
    assert summary["bars"] == 70_002
    assert summary["windows"] == 3
    tests = [row["test"] for row in summary["per_window"]]
    assert tests == [["2019-05-01", "2019-05-31"], ["2019-08-01", "2019-08-30"], ["2019-11-01", "2019-11-29"]]
    # Globex opens on every weekday of these months; Memorial Day and Thanksgiving are short sessions
    assert summary["oos"]["sessions"] == weekdays(2019, 5) + weekdays(2019, 8) + weekdays(2019, 11) == 66
    assert any("rolls are invisible" in text for text in summary["warnings"])


def test_two_years_of_irregular_es_bars_stamped_at_their_close(shared_data, tmp_path):
    path = shared_data / "csv" / "es_tick-bars_2015-2016.csv"
    config = study(tmp_path / "es", (3, 1, 1, 3), data_dir=path, symbol="ES", tz="UTC", bar_label="close")
    summary, _ = summary_of(config)
    assert summary["bars"] == 41_123
    assert summary["windows"] == 7
    months = [(2015, 5), (2015, 8), (2015, 11), (2016, 2), (2016, 5), (2016, 8), (2016, 11)]
    assert [row["test"][0][:7] for row in summary["per_window"]] == [f"{y}-{m:02d}" for y, m in months]
    assert summary["oos"]["sessions"] == sum(weekdays(*month) for month in months) == 151


LEAN = "esfut-from-lean_2013-10_2013-12.ohlcv-1m.dbn.zst"


def test_a_parent_file_with_a_roll_and_an_incomplete_test_month(shared_data, tmp_path):
    path = shared_data / "dbn_built" / LEAN
    config = study(tmp_path / "lean", (1, 1, 1, 1), data_dir=path, symbol="ES.FUT")
    with pytest.raises(
        DataError, match=r"2 complete month.*= 3\. 2013-12 is incomplete: the data end on 2013-12-20.*--partial-test"
    ):
        loop.train(config)
    partial = dataclasses.replace(config, windows=dataclasses.replace(config.windows, partial_test=True))
    summary, run = summary_of(partial)
    assert (summary["windows"], summary["contracts"], summary["rolls"]) == (1, 2, 1)
    row = summary["per_window"][0]
    assert row["partial_test"]
    assert row["contracts"] == ["ESZ3", "ESH4"]
    (roll,) = layout.read_manifest(run)["symbols"][0]["rolls"]
    assert (roll["from"], roll["to"], roll["date"][:7]) == ("ESZ3", "ESH4", "2013-12")
    assert roll["basis"] == pytest.approx(-6.25, abs=0.5)
    assert row["long_usd"] == pytest.approx(_long_by_hand(path, roll, partial, run))


def _long_by_hand(path, roll, config, run) -> float:
    """Net P&L of one contract held long over the test range: two holding periods, each at its own contract's opens."""
    tables = {table.contract: table for table in load_bars(config.data).tables}
    old, new = tables["ESZ3"], tables["ESH4"]
    roll_ns = roll["ts_ns"]
    first_ns = dt.datetime(2013, 11, 30, 12, tzinfo=dt.UTC).timestamp() * 1e9
    bought = np.flatnonzero(old.ts_ns > first_ns)[1]  # decided at the close of December's first bar
    sold = np.searchsorted(old.ts_ns, roll_ns)
    entered = np.searchsorted(new.ts_ns, roll_ns)
    points = (old.open_e9[sold] - old.open_e9[bought]) + (new.open_e9[-1] - new.open_e9[entered])
    side_usd = 0.5 * 12.5 + 2.25
    return points / 1e9 * 50 - 4 * side_usd
