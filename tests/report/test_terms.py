from tidewalk.report.terms import definitions


def test_the_factor_of_the_run_is_named():
    text = dict(definitions(257.31, {}))["Sharpe, annualised"]
    assert "ddof 1" in text
    assert "257.3 sessions a year, as observed" in text
    assert (
        "252.0 sessions a year, taken where the data span under 60 days"
        in dict(definitions(252.0, {}))["Sharpe, annualised"]
    )


def test_costs_name_the_amounts_of_the_run():
    costs = {"slippage": "ticks", "commission_usd": 2.25, "slippage_ticks": 0.5, "side_usd": 8.5}
    costs |= {"roll_as": "sides", "roll_usd": 17.0}
    text = dict(definitions(252.0, {"ES.FUT": costs}))["Costs"]
    assert text.startswith("8.50 ¤ per contract and side: 2.25 ¤ commission and 0.5 ticks of slippage;")
    assert "a rolled contract 17.00 ¤, two sides, the same in training" in text
    spread = dict(definitions(252.0, {"ES.FUT": costs | {"roll_as": "spread", "roll_usd": 10.75}}))["Costs"]
    assert "a rolled contract 10.75 ¤, as a calendar spread, all in" in spread
    assert dict(definitions(252.0, {}))["Costs"].startswith("Commission and slippage per contract and side, the same")


def test_the_variants_are_named():
    terms = dict(definitions(252.0, {}))
    assert "2014" in terms["DSR"]
    assert "close of bar t" in terms["Decision and fill"]
    assert "open of bar t+1" in terms["Decision and fill"]


def test_a_recorded_spread_and_the_costs_of_each_symbol_are_named():
    costs = {"slippage": "recorded", "commission_usd": 2.25, "slippage_ticks": 0.0, "side_usd": 2.25}
    costs |= {"roll_as": "sides", "roll_usd": 4.5}
    both = {"ES.FUT": costs | {"half_spread_ticks": 0.5125}, "NQ.FUT": costs | {"half_spread_ticks": 1.75}}
    terms = dict(definitions(252.0, both))
    assert (
        "half the spread recorded at the bar of the fill, 0.512 ticks on average; a rolled contract" in terms["Costs"]
    )
    assert "two sides; NQ.FUT 2.25 ¤" in terms["Costs"]
    assert "added up by trade date" in terms["Several symbols"]
    assert "Several symbols" not in dict(definitions(252.0, {"ES.FUT": both["ES.FUT"]}))
