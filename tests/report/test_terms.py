import polars as pl

from tidewalk.report.terms import definitions
from tidewalk.store import layout, results

EMPTY = pl.DataFrame(schema=results.EQUITY.schema)


def test_the_factor_of_the_run_is_named(make_run):
    equity = results.read_equity(layout.open_run(make_run()))
    text = dict(definitions(equity, {}))["Sharpe, annualised"]
    assert "ddof 1" in text
    assert "as observed" in text
    short = dict(definitions(equity.filter(pl.col("window") == 0), {}))["Sharpe, annualised"]
    assert "252" in short
    assert "because the sessions span" in short


def test_costs_name_the_amounts_of_the_configuration_and_what_was_paid(make_run):
    equity = results.read_equity(layout.open_run(make_run()))
    config = {"costs": {"commission_usd": 2.25, "slippage_ticks": 0.5}}
    text = dict(definitions(equity, config))["Costs"]
    assert "2.25 USD commission and 0.5 ticks of slippage" in text
    assert "paid 4.50 USD per side" in text
    assert "paid" not in dict(definitions(EMPTY, {}))["Costs"]


def test_the_variants_are_named():
    terms = dict(definitions(EMPTY, {}))
    assert "2014" in terms["DSR"]
    assert "close of bar t" in terms["Decision and fill"]
    assert "open of bar t+1" in terms["Decision and fill"]
