"""The result on the terminal: verdict first, every figure with what it means, within the width."""

import pytest

from store.made_up_summary import summary
from tidewalk.commands.headline import headline, laid_out

WIDE = "\n".join(laid_out(headline(summary()), None))


def test_the_verdict_comes_first_and_its_rule_is_there():
    lines = laid_out(headline(summary()), None)
    assert lines[0] == "ES.FUT dqn: profit not distinguishable from luck"
    assert lines[1] == "The nearest baseline is staying flat: the same position on 40.0 % of bars."
    assert lines[-1] == (
        "rule: for evidence of an edge it fails: PSR 0.80, above 0.95 needed; a loss after costs (whole rule: "
        "oos.verdict_rule of summary.json, and the report)"
    )
    met = summary()
    met["oos"] |= {"verdict_failed": []}
    assert laid_out(headline(met), None)[-1].startswith("rule: every condition of an edge is met (")


def test_all_bars_but_a_few_are_not_called_all():
    made = summary()
    made["baselines"] |= {"nearest_agreement": 0.99999}
    assert "the same position on over 99.9 % of bars." in laid_out(headline(made), None)[1]


@pytest.mark.parametrize(
    "text",
    [
        "net: +182 = gross +200 - costs 18 USD (fees 10, slippage 8)",
        "44 sessions, 8 contract sides, 4 round trips",
        "Sharpe per year 1.20 (90 % -0.40 to 2.80), max drawdown 40 USD, longest 7 sessions, position on 60% of bars",
        "PSR 0.80, DSR (2014) 0.40 of 3 trials, Sidak p 0.49, PBO 0.40 (noise: 0.20 to 0.80), SPA p 0.20 against",
        "with 3 trials, a Sharpe of 1 is expected by luck below 0.7 years; you have 0.2",
        "seeds: mean of 2: +182 (90 % 10 to 300), worst +180, best +184",
        "flat +0, long +500, short -500, momentum -9, tsmom +3, macd -4, ma_cross +5; best: buy-and-hold",
        "better than 70% of random policies",
        "hindsight: bound +10,000, 1.8% of it captured",
        "break-even per contract side 25.00 USD, paid were 2.25",
        "books: sessions, fills and round trips all add up to +182.00",
    ],
)
def test_every_figure_is_said(text):
    assert text in WIDE


def test_a_policy_that_is_a_baseline_is_named_below_the_verdict():
    made = summary()
    made["baselines"]["equals"] = ["long", "tsmom"]
    lines = laid_out(headline(made), None)
    assert lines[1].startswith("The policy equals buy-and-hold on 100 % of bars")
    assert lines[2].startswith("The policy equals time-series momentum on 100 % of bars")


def test_pbo_never_stands_without_its_band():
    made = summary()
    made["overfitting"] |= {"pbo_null90": None}
    assert "PBO" not in "\n".join(laid_out(headline(made), None))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "No baseline holds the same position on any bar."),
        (0.0002, "The nearest baseline is staying flat: the same position on under 0.1 % of bars."),
        (0.0006, "The nearest baseline is staying flat: the same position on 0.1 % of bars."),
    ],
)
def test_a_baseline_that_shares_no_bar_is_not_called_the_nearest(share, said):
    made = summary()
    made["baselines"] |= {"nearest_agreement": share}
    assert laid_out(headline(made), None)[1] == said


def test_one_is_not_said_in_the_plural_and_costs_keep_their_half_cent():
    made = summary() | {"windows": 1}
    made["oos"] |= {"sessions": 2843, "trades": 1, "round_trips": 1, "longest_drawdown_sessions": 1, "trials": 1}
    made["cost_surface"] |= {"own_side_usd": 5.595, "break_even_side_usd": 5.597}
    text = "\n".join(laid_out(headline(made), None))
    assert "out of sample, 1 window, 2,843 sessions, 1 contract side, 1 round trip\n" in text
    assert "longest 1 session, position" in text
    assert "DSR (2014) 0.40 of 1 trial, " in text
    assert "break-even per contract side 5.60 USD, paid were 5.595\n" in text


def test_what_is_undefined_says_so():
    made = summary()
    made["oos"] |= dict.fromkeys(("sharpe_session", "sharpe_ci90", "psr", "dsr", "sidak_p", "exposure"))
    made["baselines"] |= {"random_p": None}
    made["oracle"] |= {"captured_frac": None}
    made["over_seeds"] |= {"net_ci90": None}
    made["cost_surface"] |= {"break_even_side_usd": None}
    made["warnings"] = [
        "baselines.random_p is undefined: the agent never held a position",
        "cost_surface is undefined: nothing was earned to pay costs from",
    ]
    text = "\n".join(laid_out(headline(made), None))
    assert "risk: Sharpe per year undefined, max drawdown 40 USD, longest 7 sessions\n" in text
    assert "evidence: PSR undefined, DSR (2014) undefined, Sidak p undefined, PBO" in text
    assert "seeds: mean of 2: +182, worst" in text
    assert "random: no comparison with random policies: the agent never held a position\n" in text
    assert "costs: paid per contract side were 2.25 USD; no break-even: nothing was earned to pay costs from\n" in text
    made["cost_surface"] |= {"own_side_usd": None}
    assert "costs: none paid: nothing was earned" in "\n".join(laid_out(headline(made), None))
    assert "None" not in text
    assert "nan" not in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_keep_within_the_width_and_lose_no_word(width):
    lines = laid_out(headline(summary()), width)
    assert max(map(len, lines)) <= width
    assert [word.rstrip(":") for word in " ".join(lines).split()] == [word.rstrip(":") for word in WIDE.split()]


def test_several_symbols_have_a_line_each():
    made = summary()
    made["per_symbol"] = [made["per_symbol"][0], made["per_symbol"][0] | {"symbol": "NQ.FUT"}]
    text = "\n".join(laid_out(headline(made), None))
    assert "symbol: ES.FUT: 2 windows, 44 sessions, 8 contract sides: net +182" in text
    assert "symbol: NQ.FUT: 2 windows" in text
    assert "symbol:" not in WIDE


def test_money_has_the_currency_of_the_contract():
    made = summary() | {"currency": "EUR"}
    text = "\n".join(laid_out(headline(made), None))
    assert "USD" not in text
    assert text.count(" EUR") == WIDE.count(" USD") > 2
