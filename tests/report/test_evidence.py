"""Rows of evidence and the seeds: every figure with its reason, PBO never without its band."""

import numpy as np
import pytest

from report.made_up_figures import summary_record
from report.made_up_spec import RunSpec, window_record
from report.made_up_tables import equity_table, members_table
from tidewalk.report.evidence import evidence_rows, reconciled_sentence, risk_rows, seeds_figure
from tidewalk.store.summary import undefined_warning


def summary_of(**facts):
    spec, rng = RunSpec(**facts), np.random.default_rng(7)
    windows = [window_record(number, spec) for number in range(spec.all_windows)]
    return summary_record(windows, equity_table(windows, spec, rng), members_table(spec, rng), spec)


@pytest.fixture(scope="module")
def summary():
    return summary_of(seeds=6)


def by_name(rows):
    return {name: (value, meaning) for name, value, meaning in rows}


def test_every_figure_that_weighs_luck_has_a_row(summary):
    rows = by_name(evidence_rows(summary))
    assert rows["Sharpe, 90 % interval"][0] == "\u22120.31 to 1.92"
    assert rows["PSR"][0] == "0.913"
    assert rows["Sessions needed (MinTRL)"] == (
        "311",
        "for a Sharpe like this to be above 0 at 95 %; here are 174: too short",
    )
    assert rows["DSR (2014)"][0] == "0.412"
    assert rows["\u0160id\u00e1k p"][0] == "0.985"
    assert rows["Configurations tried"][0] == "46"
    assert rows["of which independent"][0] == "11.3"
    assert rows["Years needed (MinBTL)"][1].startswith("with 46 trials, a Sharpe of 1 is expected by luck below 5.0")
    assert rows["SPA p (Hansen)"][0] == "0.270"
    assert rows["Random policies beaten"][0] == "73 %"
    assert "Seeds, interquartile mean of 6" in rows


@pytest.mark.parametrize(
    ("pbo", "says"), [(0.44, "inside it, so it proves nothing"), (0.05, "outside it"), (0.9, "outside it")]
)
def test_pbo_stands_beside_its_null_band(summary, pbo, says):
    of = summary["overfitting"] | {"pbo": pbo}
    value, meaning = by_name(evidence_rows(summary | {"overfitting": of}))["PBO (CSCV)"]
    assert value == f"{pbo:.2f}"
    assert "pure noise gives 0.20 to 0.79 in 90 % of cases" in meaning
    assert meaning.endswith(says)


def test_pbo_without_a_band_is_not_shown(summary):
    of = summary["overfitting"] | {"pbo_null90": None}
    value, meaning = by_name(evidence_rows(summary | {"overfitting": of}))["PBO (CSCV)"]
    assert value == "undefined"
    assert "proves" not in meaning


def test_what_is_undefined_says_why_and_nothing_else():
    summary = summary_of(trades=False, seeds=1)
    rows = evidence_rows(summary) + risk_rows(summary)
    undefined = {name: meaning for name, value, meaning in rows if value.startswith("undefined")}
    assert undefined["PSR"] == undefined["SPA p (Hansen)"] == "no variance"
    assert undefined["Random policies beaten"] == "the ensemble never held a position"
    assert undefined["Seeds, 90 % interval"] == "1 seeds, 5 needed for an interval over seeds"
    assert not [value for _, value, _ in rows if "nan" in value or "inf" in value or "None" in value]


def test_a_reason_of_the_whole_block_explains_its_rows(summary):
    of = dict.fromkeys(summary["overfitting"]) | {"configurations": 1, "spa_benchmark": "flat"}
    odd = summary | {"overfitting": of, "warnings": [undefined_warning("overfitting", "one configuration")]}
    assert by_name(evidence_rows(odd))["PBO (CSCV)"] == ("undefined", "one configuration")


def test_the_seeds_are_all_dots_with_middle_band_ensemble_and_best_baseline(summary):
    nets = {"ensemble": 500.0} | {f"seed {k}": 100.0 * k for k in range(6)} | {"short": 900.0, "long": -1.0}
    odd = summary | {"baselines": summary["baselines"] | {"best": "short"}}
    traces = {trace.name: trace for trace in seeds_figure(odd, nets).data if trace.showlegend is not False}
    assert list(traces["seed"].x) == [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    assert list(traces["ensemble"].x) == [500.0]
    assert list(traces["interquartile mean"].x) == [summary["over_seeds"]["net_usd"]] * 2
    assert list(traces["90 % interval"].x) == summary["over_seeds"]["net_ci90"]
    assert list(traces["best baseline: short-and-hold"].x) == [900.0, 900.0]
    assert list(traces["random policies"].x) == [-3500.0, 2100.0]


def test_equal_seeds_lie_side_by_side(summary):
    nets = {f"seed {k}": 250.0 for k in range(6)}
    (dots,) = [trace for trace in seeds_figure(summary, nets).data if trace.name == "seed"]
    assert len(set(dots.y)) == 6
    assert max(map(abs, dots.y)) < 0.75


def test_few_seeds_have_no_band_and_a_single_one_no_figure():
    few = summary_of(seeds=2)
    names = [trace.name for trace in seeds_figure(few, {"seed 0": 1.0, "seed 1": 2.0}).data]
    assert "90 % interval" not in names
    assert "mean" in names
    assert seeds_figure(few, {"ensemble": 1.0, "seed 0": 1.0}) is None


def test_the_books_agree_in_words(summary):
    odd = summary | {"reconciled": {"equity_usd": 12.5, "fills_usd": 12.5, "trades_usd": 12.5, "rewards_usd": 12.49}}
    assert "add up to the same 12.50 ¤ net, to the cent" in reconciled_sentence(odd)
    assert "in float32, to 12.49." in reconciled_sentence(odd)
    assert reconciled_sentence({"reconciled": None}) is None
