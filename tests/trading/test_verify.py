"""Account limits replayed on the host, the reasons of forced exits, and a check that refuses every broken rule."""

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from random_worlds import as_market, random_world
from reference_env import Caps, Fees, Fraction, Game, Rules, play
from support import chain_market
from tidewalk.core.errors import BooksError
from tidewalk.market.device import CLOSING, NO_ENTRY
from tidewalk.trading.account import book
from tidewalk.trading.costs import Costs
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.ledger import fills, trades
from tidewalk.trading.limits import LimitConfig, Limits, resolve
from tidewalk.trading.verify import forced, halts, verify_book

COSTS = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)
SIDE = 680
"""Milliticks of a side: half a tick and 2.25 of 12.50 USD."""
FALLING = chain_market(np.array([0, -1, -1, -1, -1, -1, 0, 0, -1, 0, 0, 0]), 10, bars_per_day=6)
"""The decisions of bars 0 to 4 lose 10 ticks a lot, those of the next session 0, 0, 10 and then 0."""


def limits_of(**usd: float) -> Limits | None:
    return resolve(LimitConfig(**usd), COSTS)


def reasons(path: list[int], **usd: float) -> list[str]:
    return halts(FALLING, book(FALLING, 0, np.array(path)), limits_of(**usd)).reason.tolist()


def usd(milliticks: int) -> float:
    return milliticks * 12.5 / 1000


def test_equity_is_counted_in_thousandths_of_a_tick():
    account = book(FALLING, 0, np.array([1, 1, -1, 0]))
    assert FALLING.move_ticks[:4].tolist() == [-10, -10, -10, -10]
    replay = halts(FALLING, account, limits_of(capital_usd=1e6))
    assert replay.equity.tolist() == [-10_000 - SIDE, -20_000 - SIDE, -10_000 - 3 * SIDE, -10_000 - 4 * SIDE]
    assert replay.reason.tolist() == [""] * 4


@pytest.mark.parametrize(
    ("name", "why"),
    [("capital_usd", "ruin"), ("trailing_drawdown_usd", "drawdown"), ("daily_loss_usd", "daily-loss")],
)
def test_a_limit_that_is_reached_exactly_holds_from_the_next_row_on(name, why):
    """After row 1 the account has lost 20,680 milliticks."""
    path = [1, 1, 0, 0, 0, 0, 0]
    halted = ["", "", why, why, why] + (["", ""] if why == "daily-loss" else [why] * 2)
    assert reasons(path, **{name: usd(20_000 + SIDE)}) == halted
    # one thousandth of a tick more is not reached before the closing side is paid
    assert reasons(path, **{name: usd(20_000 + SIDE + 1)}) == ["", "", "", *halted[3:]]
    assert reasons(path, **{name: usd(20_000 + 2 * SIDE + 1)}) == [""] * 7


def test_the_session_of_a_daily_loss_is_that_of_the_fill():
    """Bars 0 to 5 are one session: the decision of bar 4 fills in its last bar, that of bar 5 in the next one."""
    assert reasons([0, 0, 0, 0, 1, 1, 1, 0], daily_loss_usd=usd(10_000)) == [""] * 8
    assert reasons([0, 0, 0, 1, 0, 1, 1, 0], daily_loss_usd=usd(10_000))[4:] == ["daily-loss", "", "", ""]
    # a loss of the session before does not count
    assert reasons([1, 1, 1, 1, 1, 1, 1, 0], daily_loss_usd=usd(60_000)) == [""] * 8


def test_drawdown_is_from_the_highest_equity_and_from_zero_at_the_start():
    rising = chain_market(np.array([0, 1, -1, -1, -1, -1, 0, 0, 0]), 10, bars_per_day=9)
    account = book(rising, 0, np.array([1, 1, 1, 0, 0]))
    limit = limits_of(trailing_drawdown_usd=usd(10_000))
    assert halts(rising, account, limit).equity.tolist()[:3] == [10_000 - SIDE, 0 - SIDE, -10_000 - SIDE]
    assert halts(rising, account, limit).reason.tolist() == ["", "", "drawdown", "drawdown", "drawdown"]
    assert reasons([0, 1, 0, 0], trailing_drawdown_usd=usd(10_000 + SIDE)) == ["", "", "drawdown", "drawdown"]


def test_the_cost_of_the_fill_that_a_drawdown_forces_can_take_the_rest_of_the_capital():
    account = book(FALLING, 0, np.array([1, 1, 0, 0]))
    for capital, is_lost in ((20_000 + 2 * SIDE, True), (20_000 + 2 * SIDE + 1, False)):
        limits = limits_of(trailing_drawdown_usd=usd(20_000), capital_usd=usd(capital))
        replay = halts(FALLING, account, limits)
        assert replay.over == (1, "drawdown")
        assert replay.lost_all == is_lost
    assert halts(FALLING, account, limits_of(daily_loss_usd=usd(20_000))).over is None


def test_of_several_limits_the_one_that_ended_the_account_is_named():
    both = {"capital_usd": usd(20_000), "trailing_drawdown_usd": usd(20_000), "daily_loss_usd": usd(10_000)}
    assert reasons([1, 0, 0, 0], **both) == ["", "daily-loss", "daily-loss", "daily-loss"]
    assert reasons([1, 1, 0, 0], **both) == ["", "daily-loss", "ruin", "ruin"]
    assert reasons([1, 1, 0, 0], **both | {"capital_usd": usd(21_300)})[2:] == ["drawdown", "drawdown"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["sides", "spread"]), st.booleans())
@example(156, "sides", True)
def test_the_replay_halts_where_the_reference_does_and_finds_no_fault(seed, roll_as, has_spread):
    """Against the slow environment of the tests, which acts under limits row by row."""
    rng = random.Random(seed)
    world = random_world(rng, 64, 1, has_spread=has_spread)
    given_usd = [rng.choice((None, Fraction(rng.randint(10_000, 200_000), 100))) for _ in range(3)]
    fees = Fees(Fraction(25, 2), Fraction(9, 4), Fraction(1, 2))
    caps = Caps.of_usd(fees.tick_value_usd, *given_usd)
    rules = Rules(positions=3, flat_at_close=rng.random() < 0.5, roll_as=roll_as, lots_per_level=rng.choice((1, 2)))
    rows = play(Game(world, rules, fees, caps), 3, 55, lambda *bounds: rng.randint(*bounds[2:]))
    data = as_market(world)
    account = book(data, 3, np.array([row.after for row in rows]), roll_as)
    costs = dataclasses.replace(COSTS, roll_usd=float(fees.roll_usd))
    names = ("capital_usd", "daily_loss_usd", "trailing_drawdown_usd")
    limits = resolve(
        LimitConfig(**{name: None if x is None else float(x) for name, x in zip(names, given_usd, strict=True)}), costs
    )
    replay = halts(data, account, limits)
    if limits is not None:
        assert replay.equity.tolist() == [row.account.equity for row in rows]
        assert [why != "" for why in replay.reason] == [row.is_halted for row in rows]
    env = EnvConfig(3, rules.lots_per_level, flat_at_close=rules.flat_at_close, roll_as=roll_as, no_entry_minutes=30)
    verify_book("random", data, env, account, limits)
    why = forced(data, env, account, limits)
    assert [(cause != "decision") for cause in why] == [bool(row.causes) for row in rows]
    ends = [own for own in why if own in ("ruin", "drawdown")]
    for row, own in zip(rows, why, strict=True):
        strongest = next((cause for cause in row.causes if cause in ("ruin", "drawdown", "daily-loss")), own)
        # after a drawdown the cost of getting out may take the rest of the capital: what came first is named
        assert own == (ends[0] if ends and strongest in ("ruin", "drawdown") else strongest)
    over = next((row.causes for row in rows if {"ruin", "drawdown"} & {*row.causes}), ())
    assert ends[:1] == [cause for cause in over if cause in ("ruin", "drawdown")][:1]
    filled = fills(data, account, costs, why)
    assert trades(filled, costs).gross_ticks.sum() == sum(row.gross_ticks for row in rows)


# ---- reasons


def test_the_strongest_rule_is_named():
    env = EnvConfig(flat_at_close=True)
    account = book(FALLING, 0, np.array([1, 1, 0, 0, 0, 0, 1, 0]))
    assert FALLING.flags[4] & CLOSING
    close = ["decision"] * 4 + ["close"] + ["decision"] * 2 + ["end"]
    assert forced(FALLING, env, account).tolist() == close
    ruined = forced(FALLING, env, account, limits_of(capital_usd=usd(20_000)))
    assert ruined.tolist() == ["decision", "decision", *["ruin"] * 6]


def test_a_forced_exit_carries_its_reason_into_fills_and_trades():
    account = book(FALLING, 0, np.array([1, 1, 0, 0, 0, 0, 1, 0]))
    for env, limits, expected in (
        (EnvConfig(), None, ["decision", "end"]),
        (EnvConfig(), limits_of(daily_loss_usd=usd(20_000)), ["daily-loss", "end"]),
        (EnvConfig(), limits_of(trailing_drawdown_usd=usd(20_000)), ["drawdown", "drawdown"]),
        (EnvConfig(), limits_of(capital_usd=usd(20_000)), ["ruin", "ruin"]),
    ):
        trips = trades(fills(FALLING, account, COSTS, forced(FALLING, env, account, limits)), COSTS)
        assert trips.exit_reason.tolist() == expected
        assert trips.entry_reason.tolist() == ["decision", "decision"]
    closing = book(FALLING, 2, np.array([1, 1, 0, 0]))
    why = forced(FALLING, EnvConfig(flat_at_close=True), closing)
    assert fills(FALLING, closing, COSTS, why).reason.tolist() == ["decision", "close"]


# ---- the check: every rule, broken once


def late(bar: int):
    flags = FALLING.flags.copy()
    flags[bar] |= NO_ENTRY
    return dataclasses.replace(FALLING, flags=flags)


@pytest.mark.parametrize(
    ("env", "path", "data", "message"),
    [
        (EnvConfig(), [0, 2, 0], FALLING, r"bar 1 .*2 lots after 0, which exceeds 1 lots"),
        (EnvConfig(3, max_position=2), [-3, 0], FALLING, r"-3 lots after 0, which exceeds 2 lots"),
        (EnvConfig(3, lots_per_level=2), [2, 3, 0], FALLING, "3 lots after 2, which is not a multiple of 2 lots"),
        (EnvConfig(direction="long"), [-1, 0], FALLING, "is short in a study of long positions"),
        (EnvConfig(direction="short"), [1, 0], FALLING, "is long in a study of short positions"),
        (EnvConfig(flat_at_close=True), [1, 1, 1, 1, 1, 0], FALLING, r"bar 4 .*is not flat where it must be \(close\)"),
        (EnvConfig(), [0, 1, 1], FALLING, r"bar 2 .*is not flat where it must be \(end\)"),
        (EnvConfig(no_entry_minutes=5), [0, 1, 0], late(1), "was entered in the minutes without entries"),
        (EnvConfig(2, no_entry_minutes=5), [1, 2, 0], late(1), "was entered in the minutes without entries"),
        (EnvConfig(no_entry_minutes=5), [1, -1, 0], late(1), "was entered in the minutes without entries"),
    ],
)
def test_a_broken_rule_is_a_fault_of_the_program(env, path, data, message):
    with pytest.raises(BooksError, match=rf"please report it: the book of agent on ES\.FUT .*{message}"):
        verify_book("agent", data, env, book(data, 0, np.array(path)))


@pytest.mark.parametrize("name", ["capital_usd", "trailing_drawdown_usd", "daily_loss_usd"])
def test_a_position_held_beyond_a_limit_is_a_fault(name):
    limits = limits_of(**{name: usd(20_000)})
    verify_book("agent", FALLING, EnvConfig(), book(FALLING, 0, np.array([1, 1, 0, 0])), limits)
    with pytest.raises(BooksError, match=r"bar 2 .*is not flat where it must be"):
        verify_book("agent", FALLING, EnvConfig(), book(FALLING, 0, np.array([1, 1, 1, 0])), limits)
    with pytest.raises(BooksError, match=r"bar 3 .*is not flat where it must be"):
        verify_book("agent", FALLING, EnvConfig(), book(FALLING, 0, np.array([1, 1, 0, 1, 0])), limits)


def test_late_minutes_allow_what_is_held_or_less():
    data = late(1)
    for path in ([2, 2, 0], [2, 1, 0], [-2, -1, 0], [1, 0, 0]):
        verify_book("agent", data, EnvConfig(2, no_entry_minutes=5), book(data, 0, np.array(path)))


@pytest.mark.parametrize("field", ["before_lots", "gross_ticks", "sides", "crossed_ticks", "rolled"])
def test_amounts_that_do_not_follow_from_the_positions_are_a_fault(field):
    account = book(FALLING, 0, np.array([1, 1, 0]))
    wrong = getattr(account, field).copy()
    wrong[1] += 1
    with pytest.raises(BooksError, match=rf"bar 1 .*{field} is"):
        verify_book("agent", FALLING, EnvConfig(), dataclasses.replace(account, **{field: wrong}))


def test_a_book_of_another_roll_form_is_a_fault():
    data = chain_market(np.zeros(40, np.int64), 1, bars_per_day=10, roll_at=20)
    account = book(data, 15, np.array([1] * 9 + [0]), "spread")
    verify_book("agent", data, EnvConfig(roll_as="spread"), account)
    with pytest.raises(BooksError, match=r"bar 19 .*sides is 0, and its positions give 2"):
        verify_book("agent", data, EnvConfig(), account)
