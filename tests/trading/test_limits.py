"""Account limits by hand: what is counted, when a limit acts, and that a limit met exactly acts."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import Costs
from tidewalk.trading.limits import LimitConfig, Limits, resolve

ES = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.5)


def milli(ticks):
    return jnp.asarray(round(ticks * 1000), jnp.int32)


def equity(account):
    """Milliticks, as a Python integer that cannot overflow."""
    return int(account.equity_ticks) * 1000 + int(account.equity_milli)


def account_after(nets, sessions, limits=None):
    """The account after rows of these net ticks, and whether the row after each is over or halted."""
    account, said = limit_ops.open_account(), []
    for net, session, following in zip(nets, sessions, [*sessions[1:], sessions[-1]], strict=True):
        account = limit_ops.booked(account, milli(net), jnp.int32(session))
        if limits is not None:
            is_halted = limit_ops.is_halted(limits, account, jnp.int32(following))
            said.append((bool(limit_ops.is_over(limits, account)), bool(is_halted)))
    return account, said


def made(capital=None, daily=None, drawdown=None):
    parts = [None if ticks is None else milli(ticks) for ticks in (capital, daily, drawdown)]
    return Limits(milli(1.0), milli(0.0), *parts)


# ---- what is counted


def test_costs_round_half_up_and_limits_down_to_a_thousandth_of_a_tick():
    # 0.5 + 2.25 / 12.5 = 0.68 ticks a side; 1000 / 12.5 = 80 ticks
    found = resolve(LimitConfig(capital_usd=1000.0, daily_loss_usd=500.004, trailing_drawdown_usd=12.5), ES)
    assert [int(x) for x in (found.side, found.capital, found.daily_loss, found.drawdown)] == [
        680,
        80_000,
        40_000,
        1000,
    ]
    odd = resolve(LimitConfig(capital_usd=1.0), Costs(tick_value_usd=8.0, commission_usd=0.004, slippage_ticks=0.25))
    assert int(odd.side) == 251, "250.5 is rounded up"
    assert (odd.daily_loss, odd.drawdown) == (None, None)
    spread = resolve(LimitConfig(capital_usd=1.0), Costs(12.5, 2.25, 0.5, roll_usd=10.75))
    assert int(spread.roll) == 860
    assert resolve(LimitConfig(), ES) is None


def test_a_tick_value_that_floats_miss_counts_as_it_is_written():
    yen = 12_500_000 * 0.0000005  # 6.25
    for tick_usd in (yen, 6.25, 6.250000000000001, 6.249999999999999):
        found = resolve(LimitConfig(capital_usd=1000.0), Costs(tick_usd, 0.0, 0.0))
        assert int(found.capital) == 160_000
    assert limit_ops.exact(0.1) == Fraction(1, 10)


@given(st.integers(-40, 40), st.integers(0, 6), st.integers(0, 3), st.integers(0, 12))
@settings(max_examples=50, deadline=None)
def test_a_net_result_is_exact_in_thousandths(gross, sides, rolled, eighths):
    limits = Limits(jnp.int32(683), jnp.int32(857))
    ints = [jnp.asarray(x, jnp.int32) for x in (gross, sides, rolled)]
    half = eighths / 8
    crossed = int(Fraction(half) * 1000 + Fraction(1, 2)) * sides
    assert int(limit_ops.net_milliticks(limits, *ints, jnp.float32(half))) == (
        gross * 1000 - 683 * sides - 857 * rolled - crossed
    )
    assert int(limit_ops.net_milliticks(limits, *ints[:2], None, None)) == gross * 1000 - 683 * sides


def test_half_spreads_round_half_up():
    found = limit_ops.to_milliticks(jnp.array([0.0, 0.5, 0.0625, 0.0005, 0.00049, 17.5], jnp.float32))
    assert found.tolist() == [0, 500, 63, 1, 0, 17_500]


# ---- when a limit acts


def test_an_account_keeps_equity_its_peak_and_the_result_of_the_session():
    account, _ = account_after([5.0, -2.0, 4.0, -1.5], [0, 0, 1, 1])
    assert (equity(account), int(account.drawdown), int(account.day), int(account.session)) == (5500, 1500, 2500, 1)


def test_a_loss_in_the_first_row_is_measured_from_the_start():
    limits = made(drawdown=3.0)
    assert account_after([-2.999], [0], limits)[1] == [(False, False)]
    assert account_after([-3.0], [0], limits)[1] == [(True, True)]


# validity.md B32: equity of exactly 0 is ruin
@pytest.mark.parametrize(("losses", "is_over"), [([-9.999], False), ([-10.0], True), ([-4.0, -7.0], True)])
def test_ruin_is_an_account_with_nothing_left(losses, is_over):
    _, said = account_after(losses, [0] * len(losses), made(capital=10.0))
    assert said[-1] == (is_over, is_over)


def test_a_drawdown_is_measured_from_the_highest_equity():
    nets = [6.0, -2.0, -1.0, 4.0, -4.999, -0.001]
    _, said = account_after(nets, [0, 0, 1, 1, 2, 2], made(drawdown=5.0))
    assert [over for over, _ in said] == [False, False, False, False, False, True]


def test_the_drawdown_by_hand_in_the_documentation():
    limits = resolve(LimitConfig(trailing_drawdown_usd=300.0), ES)
    assert (int(limits.side), int(limits.drawdown)) == (680, 24_000)
    moves, sides = [20, -10, -14, 0], [1, 0, 0, 1]
    nets = [move - 0.68 * traded for move, traded in zip(moves, sides, strict=True)]
    account, said = account_after(nets, [0, 0, 0, 0], limits)
    assert [over for over, _ in said] == [False, False, True, True]
    assert (equity(account), int(account.drawdown)) == (-5360, 19_320 + 5360)
    assert -5360 * 12.5 / 1000 == -67.0


def test_an_account_that_is_over_stays_over():
    limits = made(capital=10.0, drawdown=8.0)
    _, said = account_after([-8.0, -1.0, 0.0, 0.0], [0, 1, 2, 3], limits)
    assert said == [(True, True)] * 4


def test_a_daily_loss_halts_until_the_next_session_and_ends_nothing():
    limits = made(daily=3.0)
    # lost in session 0, the closing fill costs 1, nothing is held; session 1 starts anew; in 2 a profit is lost again
    nets = [-2.0, -1.0, -1.0, 0.0, -2.9, 4.0, -3.0, -4.0]
    sessions = [0, 0, 0, 0, 1, 2, 2, 2]
    _, said = account_after(nets, sessions, limits)
    assert [over for over, _ in said] == [False] * 8
    assert [halted for _, halted in said] == [False, True, True, False, False, False, False, True]


def test_a_loss_over_the_break_does_not_halt_the_session_in_which_the_next_row_fills():
    account = limit_ops.booked(limit_ops.open_account(), milli(-7.0), jnp.int32(0))
    limits = made(daily=5.0)
    assert bool(limit_ops.is_halted(limits, account, jnp.int32(0)))
    assert not bool(limit_ops.is_halted(limits, account, jnp.int32(1)))


# ---- what is refused


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["capital_usd", "daily_loss_usd", "trailing_drawdown_usd"])
def test_limits_that_nothing_could_stay_within_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is {value:g}; it must be above 0"):
        LimitConfig(**{name: value})


def test_equity_may_leave_the_range_of_milliticks():
    """Gains of 6 million ticks, then one tick more than all of them and the capital lost."""
    limits, row = made(capital=10.0), 1_500_000.5
    account, said = account_after([row] * 4 + [-row] * 4 + [-9.999, -0.001], list(range(10)), limits)
    assert [over for over, _ in said] == [False] * 9 + [True]
    assert equity(account) == -10_000
    account, _ = account_after([row] * 4, [0, 1, 2, 3])
    assert (equity(account), int(account.drawdown)) == (4 * 1_500_000_500, 0)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ConfigError, match=r"the cost of a side is 8000000 ticks.*2147483647"):
        resolve(LimitConfig(capital_usd=1.0), Costs(12.5, 1e8, 0.0))
    with pytest.raises(ConfigError, match=r"--capital-usd is 2400000 ticks.*leave the limit out"):
        resolve(LimitConfig(capital_usd=30_000_000.0), ES)
    with pytest.raises(ConfigError, match=r"--daily-loss-usd is 0.01, less than a thousandth of a tick \(0.0125\)"):
        resolve(LimitConfig(daily_loss_usd=0.01), ES)
    assert np.asarray(resolve(LimitConfig(daily_loss_usd=0.0125), ES).daily_loss) == 1
