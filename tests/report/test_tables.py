import datetime

import numpy as np
import polars as pl
import pytest

from tidewalk.report import tables
from tidewalk.report.tables import frac_percent, number, usd
from tidewalk.stats.metrics import sessions_per_year, sharpe
from tidewalk.store import layout, results
from tidewalk.store.summary import read_summary, reason_for, undefined_warning

EMPTY = pl.DataFrame(schema=results.EQUITY.schema)


@pytest.fixture
def run(make_run):
    return layout.open_run(make_run())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567, "1,234,567"), (-1234.4, "\u22121,234"), (-0.2, "0"), (None, "undefined"), ("x", "undefined")],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.25, "2.25"), (-9.5, "\u22129.50"), (9.996, "10"), (12.5, "12"), (-6231.5, "\u22126,232")],
)
def test_money_has_cents_only_where_they_matter(value, text):
    assert usd(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None])
def test_what_is_not_finite_is_undefined(value):
    assert usd(value) == number(value) == frac_percent(value) == tables.with_unit(value, "ms", 0) == "undefined"


def test_the_reason_is_what_the_warning_says_of_exactly_this_figure():
    warnings = [undefined_warning("oos.psr", "no variance"), "oos.sharpe_session_x is odd", "oos is empty"]
    assert reason_for("oos.psr", warnings) == "no variance"
    assert reason_for("oos.sharpe_session", warnings) == "oos is empty"
    assert reason_for("oracle.captured_frac", warnings) == "no reason was recorded"


def test_the_headline_in_reading_order(run):
    cards = tables.headline_cards(read_summary(run), results.read_equity(run))
    assert [card.title for card in cards] == [
        *("Net, out of sample", "Gross", "Costs", "Trades", "Sessions", "Mean position", "Sharpe, annualised"),
        *("Max drawdown", "PSR", "DSR", "Random policies beaten", "Hindsight captured"),
    ]
    by_title = {card.title: card for card in cards}
    assert by_title["PSR"].value == "0.913"
    assert by_title["DSR"].note == "deflated for 46 trials"
    assert by_title["Random policies beaten"].value == "73 %"
    assert by_title["Sharpe, annualised"].note == "90 % CI \u22120.31 to 1.92"
    assert by_title["Sessions"].note == "2018-05-01 to\n2020-02-28"


def test_undefined_figures_say_why(make_run):
    run = layout.open_run(make_run(trades=False))
    cards = tables.headline_cards(read_summary(run), results.read_equity(run))
    found = {card.title: (card.value, card.note) for card in cards}
    assert found["PSR"] == (None, "no variance")
    assert found["Random policies beaten"] == (None, "the ensemble never held a position")
    assert found["Trades"][0] == "0"


def test_a_summary_without_any_result_is_all_undefined():
    cards = tables.headline_cards({"oos": None, "warnings": ["oos is undefined: nothing was tested"]}, EMPTY)
    assert {card.value for card in cards} == {None}
    assert cards[0].note == "nothing was tested"


def test_policies_are_the_ensemble_the_median_seed_and_the_baselines(run):
    equity = results.read_equity(run)
    rows = tables.policy_rows(equity, 252.0)
    assert [row[0] for row in rows] == [
        *("ensemble", "seeds, median of 4", "long", "short", "momentum", "tsmom", "macd", "ma_cross", "flat"),
        "oracle (hindsight bound)",
    ]
    nets = [equity.filter(pl.col("policy") == f"seed {k}")["net_usd"].sum() for k in range(4)]
    assert rows[1][1] == usd(np.median(nets))
    assert rows[8][1:] == ["0", "0", "0", "0", "0.00", "undefined", "0", "0 %"]


def test_who_lost_the_capital_has_no_sharpe_ratio_in_the_table_of_policies():
    nets = {
        "ensemble": (-60.0, 30.0, 90.0, 5.0),
        "long": (50.0, -99.0, 200.0, -100.0),
        "oracle": (-150.0, 1.0, 2.0, 9.0),
    }
    nets |= {"short": (200.0, 10.0, -96.0, 5.0), "seed 0": (5.0, -70.0, 60.0, -95.0), "seed 1": (5.0, 7.0, -60.0, -9.0)}
    days = [datetime.date(2024, 1, day) for day in (2, 3, 4, 5)]
    equity = pl.concat(
        pl.DataFrame({"policy": name, "symbol": "ES.FUT", "window": [0, 0, 1, 1], "trade_date": days, "net_usd": net})
        for name, net in nets.items()
    ).with_columns(gross_usd=pl.col("net_usd"), costs_usd=0.0, position_mean=1.0, trades=1)
    assert tables.ruined_policies(equity, None) == frozenset()
    assert tables.ruined_policies(equity, 95.0) == {"seed 0", "short"}
    assert tables.ruined_policies(equity, 40.0) == {"ensemble", "long", "short", "seed 0", "seed 1"}
    rows = {row[0]: row[6] for row in tables.policy_rows(equity, 252.0, frozenset({"seed 0", "long"}))}
    assert rows["long"] == rows["seeds, median of 2"] == "undefined"
    assert "undefined" not in (rows["ensemble"], rows["oracle (hindsight bound)"])


def test_the_factor_is_the_one_behind_the_headline(run):
    summary, equity = read_summary(run), results.read_equity(run)
    own = equity.filter(pl.col("policy") == "ensemble")
    per_session = sharpe(own["net_usd"].to_numpy(), 1.0).value
    summary["oos"]["sessions_per_year"] = 250.0
    assert tables.sessions_factor(summary, equity) == 250.0
    (ensemble, *_) = tables.policy_rows(equity, 250.0)
    assert ensemble[6] == number(per_session * 250.0**0.5, 2)


def test_without_a_headline_the_factor_is_observed_or_the_default(run):
    dates = results.read_equity(run).filter(pl.col("policy") == "ensemble")["trade_date"].to_list()
    assert tables.sessions_factor({}, results.read_equity(run)) == sessions_per_year(dates)
    assert tables.sessions_factor({"oos": None}, EMPTY) == 252.0


def test_window_rows_have_the_spread_of_seeds_and_a_star_where_partial(run):
    summary = read_summary(run)
    summary["per_window"][-1]["partial_test"] = True
    rows = tables.window_rows(summary["per_window"])
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5", "6", "7*"]
    assert {len(row) for row in rows} == {19}
    assert rows[0][14:17] == [
        frac_percent(summary["per_window"][0]["captured_frac"]),
        number(summary["per_window"][0]["wfe"], 2),
        number(summary["per_window"][0]["break_even_side_usd"], 2),
    ]
    unknown = summary["per_window"][0] | dict.fromkeys(("captured_frac", "wfe", "break_even_side_usd"))
    assert tables.window_rows([unknown])[0][14:17] == ["\u2013"] * 3
    seeds = summary["per_window"][0]["seeds_net_usd"]
    assert rows[0][9:12] == [usd(min(seeds)), usd(np.median(seeds)), usd(max(seeds))]
    assert rows[0][3] == "2018-05-01 to\n2018-05-31"


def test_many_best_epochs_become_a_range(make_run):
    summary = read_summary(layout.open_run(make_run(seeds=12, windows=1)))
    epochs = summary["per_window"][0]["best_epoch"]
    (row,) = tables.window_rows(summary["per_window"])
    assert row[4] == f"{min(epochs)}\u2013{max(epochs)}, median {np.median(epochs):.0f}"


def test_months_add_up_and_untested_ones_are_blank(run):
    equity = results.read_equity(run)
    rows = tables.month_rows(equity)
    assert [year for year, _ in rows] == ["2018", "2019", "2020"]
    cells = rows[0][1]
    assert [k + 1 for k in range(12) if cells[k].text] == [5, 8, 11]
    first = equity.filter((pl.col("policy") == "ensemble") & (pl.col("window") == 0))["net_usd"].sum()
    assert cells[4].text == usd(first)
    year = equity.filter((pl.col("policy") == "ensemble") & (pl.col("trade_date") < datetime.date(2019, 1, 1)))
    assert cells[12].text == usd(year["net_usd"].sum())
    levels = [cell.level for _, year in rows for cell in year[:12]]
    assert max(map(abs, levels)) == 3


def test_contracts_count_their_fills(run):
    fills = results.read_fills(run)
    rows = tables.contract_rows(fills)
    assert sum(int(row[1]) for row in rows) == fills.height
    assert sum(int(row[2]) for row in rows) == fills["lots"].abs().sum()


def test_rolls_show_both_prices_and_the_jump_that_is_no_profit():
    # B11 of the bug log: old contract 4030.375, new one 4063.375, 33 points that are nobody's.
    roll = {"date": "2024-03-08", "from": "ESH4", "to": "ESM4", "exit": 4030.375, "entry": 4063.375, "basis": 33.0}
    roll |= {"from_volume": 1200.0, "to_volume": 3400.0, "reason": "volume"}
    assert tables.roll_rows([roll]) == [
        ["2024-03-08", "ESH4", "ESM4", "4,030.375", "4,063.375", "33.000", "1,200", "3,400", "volume"],
    ]


def test_nested_records_become_dotted_rows():
    record = {"a": {"b": 1, "c": [1, 2]}, "files": {"x": 1}, "none": None, "no": False}
    assert tables.flat_rows(record, skip=frozenset({"files"})) == [["a.b", "1"], ["a.c", "1, 2"], ["no", "False"]]
