"""Faults that others have reported in their trading environments and learners: the smallest case of each, and its right
result. Numbers are those of the bug log in the design notes; faults of reading data are in tests/data/test_bug_log.py.
"""

import dataclasses
import functools
import hashlib
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import as_nq, chain_market, planted_market, planted_signs, small_config
from tidewalk.agents import replay
from tidewalk.agents.replay import Records
from tidewalk.agents.value import double_q_error
from tidewalk.core import keys, trees
from tidewalk.market.device import Market
from tidewalk.market.windows import Windows, fit_windows
from tidewalk.run.study import plan_study
from tidewalk.trading import env as env_ops
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.account import book, costs_usd, gross_usd
from tidewalk.trading.costs import CostConfig, Costs, CostTicks
from tidewalk.trading.env import EnvConfig, Scaler
from tidewalk.trading.ledger import fills, trades
from tidewalk.trading.limits import LimitConfig, Limits
from tidewalk.train.collect import collect, transitions
from tidewalk.train.evaluate import trade_members
from tidewalk.train.population import Lanes, initial_state, window_of
from tidewalk.train.rollout import follow
from worlds import World, base, make_world

ES = Costs(tick_value_usd=12.5, commission_usd=2.25, slippage_ticks=0.0)


def steady_market(ticks: int = 1, bars: int = 200):
    """Every bar opens `ticks` above the one before."""
    return chain_market(np.ones(bars, np.int64), ticks, bars_per_day=24)


# --- normalisation and look-ahead


def test_b17_the_scaler_knows_the_train_months_alone() -> None:
    # a3c_trading issue 3, jinglescode/time-series issue 19: scaled by the mean and maximum of the whole set.
    market = planted_market(days=182)
    plan = plan_study(small_config(Path("none.npz")), [market], compose="scan").legs[0].plan

    def digest(features: np.ndarray, move_ticks: np.ndarray, window: int) -> str:
        rows = fit_windows(plan, features, move_ticks)
        parts = (np.asarray(part)[window].tobytes() for part in (rows.center, rows.scale, rows.reward_scale))
        return hashlib.sha256(b"".join(parts)).hexdigest()

    for window in plan.windows:
        later = np.arange(market.num_bars) >= window.train.stop
        tenfold = np.where(later[:, None], 10 * market.features, market.features)
        moves = np.where(later, 10 * market.move_ticks, market.move_ticks)
        own = digest(market.features, market.move_ticks, window.index)
        assert digest(tenfold, moves, window.index) == own
        assert digest(10 * market.features, market.move_ticks, window.index) != own


def test_b18_evaluating_twice_changes_nothing_and_money_is_money() -> None:
    # rl-baselines3-zoo issue 275: the running normaliser goes on in evaluation, and scales the rewards.
    world = base()
    state = jax.jit(functools.partial(initial_state, world.program))(world.windows, world.members)
    best = dataclasses.replace(state.best, epoch=jnp.ones_like(state.best.epoch))

    def digest() -> str:
        leaves = trees.to_named((state, world.windows, world.market)).values()
        return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()

    before, trade = digest(), jax.jit(functools.partial(trade_members, world.program))
    paths = [np.asarray(trade(*world.fixed, best), np.int64) - 1 for _ in range(2)]
    assert paths[0].tobytes() == paths[1].tobytes()
    assert digest() == before
    first, stop = (int(edge) for edge in world.windows.test[0])
    own = book(world.data, first, paths[0][0][: stop - first])
    prices = world.data.open_e9[first + 1 : stop + 1] / 1e9
    assert own.after_lots.any()
    cash = -(np.diff(own.after_lots, prepend=0) * prices).sum() * 50
    assert gross_usd(ES, own.gross_ticks.sum()) == pytest.approx(cash)


def test_b20_the_observation_ends_with_the_bar_that_was_decided_on() -> None:
    # gym-anytrading issue 66, FinRL issue 1346, FinRL_Crypto issue 6: the state or the reward of another step.
    data = steady_market()
    number = np.arange(data.num_bars, dtype=np.float32)[:, None] / 32
    market = jax.device_put(dataclasses.replace(data, features=number, info=_one_feature(data.info)).on_device())
    env, scaler = EnvConfig(lookback=3), Scaler(center=jnp.zeros(1), scale=jnp.ones(1))
    for t in (2, 3, 77):
        seen = env_ops.observe(env, market, scaler, jnp.int32(t), jnp.int32(2))
        assert (32 * seen[:3]).tolist() == [t - 2, t - 1, t]
        assert seen[3:].tolist() == [0, 0, 1]
        late = dataclasses.replace(env, decision_delay=2)
        if t > 3:
            assert (32 * env_ops.see(late, market, scaler, jnp.int32(t))).tolist() == [t - 4, t - 3, t - 2]
    # the reward of what is held from the fill at p(t+1) to the fill at p(t+2)
    opens = data.open_e9 // 250_000_000
    for t in (0, 5, 90):
        taken = env_ops.step(env, market.move_ticks[t], market.flags[t], jnp.int32(1), jnp.int32(0))
        assert int(taken.tally.gross_ticks) == -(opens[t + 2] - opens[t + 1]) == -1


def _one_feature(info):
    return dataclasses.replace(info, feature_names=("number",))


def poisoned(market: Market, first: int) -> Market:
    """Bars from `first` on that show in whatever reads them."""
    bars = jnp.arange(market.flags.shape[0])
    return dataclasses.replace(
        market,
        move_ticks=jnp.where(bars >= first, jnp.int32(1_000_003), market.move_ticks),
        features=jnp.where((bars >= first)[:, None], jnp.float32(jnp.nan), market.features),
    )


def lane_records(first: int, stop: int, count: int):
    """Records of a lane that is long from `first` until the train decisions end, and starts again; then sequences."""
    bars = np.concatenate([np.arange(first, stop), np.arange(first, first + count)])
    ones, fresh = np.full(len(bars), 2), np.isin(np.arange(len(bars)), [0, stop - first])
    never = jnp.zeros(len(bars), bool)
    position = np.where(fresh, 1, 2)
    parts = (jnp.asarray(part, jnp.int32) for part in (bars, position, ones))
    words = replay.pack(Records(*parts, is_fresh=jnp.asarray(fresh), is_halted=never, is_terminated=never))
    return jnp.stack([words[i : i + count] for i in range(stop - first)])


def test_b21_the_last_train_transitions_end_with_the_train_months() -> None:
    """Train bars end with bar 99. Its open marks decision 97; 5 steps from 93 need decisions up to 97 and see bar 98.

    A trade at the next open takes one bar more than the report's trade at the close, whose last start is 94.
    """
    # HKUDS/Vibe-Trading pull request 1392: the last samples used prices after the training end; missing ones became 0.
    world = make_world(data=steady_market(ticks=4), windows=1, seeds=1)
    stop = 98
    window = train_window(world, 10, stop)
    market = poisoned(world.market, stop + 2)
    market = dataclasses.replace(market, move_ticks=market.move_ticks.at[stop].set(1_000_003))
    made = jax.jit(functools.partial(transitions, world.program, limits=None))
    batch = made(market, window, lane_records(80, stop, 5), CostTicks(jnp.float32(0)), jnp.float32(0.5))
    steps = [5] * 14 + [4, 3, 2, 1]  # starts 80 to 97
    assert np.log2(batch.discount_t).tolist() == [-k for k in steps]
    assert batch.reward_t.tolist() == pytest.approx([0.4 * sum(0.5**i for i in range(k)) for k in steps])
    final = np.minimum(np.arange(80, stop) + 5, stop)
    assert batch.observation_t[:, :4].tolist() == world.data.features[final].tolist(), (
        "not that of the lane's new start"
    )


def train_window(world: World, first: int, stop: int) -> Windows:
    """The row of the only window, with other train decisions."""
    spans = jnp.array([[first, stop]], jnp.int32)
    return window_of(dataclasses.replace(world.windows, train=spans), jnp.int32(0))


# --- ends of episodes


def test_b23_the_end_of_the_data_bootstraps_and_ruin_does_not() -> None:
    # TorchTrade issue 150, skrl issue 449: r = 1, gamma .9, V(next) = 10.
    data = steady_market(ticks=-10)
    world = make_world(data=data, windows=1, seeds=1, env=EnvConfig(direction="short"))
    window = train_window(world, 10, 60)
    capital = limit_ops.resolve(LimitConfig(capital_usd=125.0), Costs(12.5, 0.0, 0.0))  # one move of ten ticks
    cases = [
        # position held before and after (index): short earns 1 at the last train bar; long loses all and is over
        ("end of data", 59, 0, 1.0, 0.9, 10.0),
        ("ruin", 30, 2, -1.0, 0.0, -1.0),
    ]
    for name, bar, held, reward, discount, target in cases:
        env = EnvConfig() if name == "ruin" else world.program.env
        program = dataclasses.replace(world.program, env=env, lanes=1, agent=_always(world.program.agent, held))
        start = _lanes(bar, held)
        bits = jax.random.bits(keys.root_key(0), (3,), dtype="uint32")
        act, remembered = (jax.jit(functools.partial(form, program)) for form in (collect, transitions))
        _, words = act(world.market, window, {}, start, bits, jnp.float32(0), capital)
        record = replay.unpack(words[0])
        assert bool(record.is_terminated) == (name == "ruin"), name
        free = CostTicks(jnp.float32(0))
        batch = remembered(world.market, window, words[None], free, jnp.float32(0.9), capital)
        assert float(batch.reward_t[0]) == pytest.approx(reward), name
        assert float(batch.discount_t[0]) == pytest.approx(discount), name
        values = jnp.array([10.0, 10.0, 10.0])
        given = (jnp.zeros(3), batch.action_tm1[0], batch.reward_t[0], batch.discount_t[0], values, values)
        assert float(double_q_error(*given, batch.is_allowed_t[0])) == pytest.approx(target), name


def _always(agent, index: int):
    return dataclasses.replace(agent, q_values=lambda *_: jax.nn.one_hot(index, 3))


def _lanes(bar: int, position: int):
    one = jnp.ones(1, jnp.int32)
    return Lanes(bar=bar * one, position=position * one, age=one, account=limit_ops.open_account((1,)))


# --- rewards, costs, positions


def held_book(market, lots: list[int], roll_as="sides"):
    return book(market, 3, np.array(lots, np.int64), roll_as)


def net_usd(own, costs: Costs) -> Fraction:
    parts = (gross_usd(costs, own.gross_ticks.sum()), costs_usd(costs, own.sides.sum(), 0.0, own.rolled.sum()))
    return Fraction(float(parts[0])) - Fraction(float(parts[1]))


def test_b28_a_point_of_a_future_is_its_multiplier_in_money() -> None:
    # pynecore issue 50: NQ, +10 points, one contract, multiplier 20, 2.25 a side.
    nq = as_nq(steady_market(ticks=40))  # 10 points a bar
    costs = Costs(tick_value_usd=nq.info.tick_value_usd, commission_usd=2.25, slippage_ticks=0.0)
    own = held_book(nq, [1, 0])
    assert own.gross_ticks.tolist() == [40, 0]
    assert net_usd(own, costs) == Fraction("195.50")
    (trip,) = trades(fills(nq, own, costs), costs).net_usd
    assert trip == 195.50


def test_b29_the_multiplier_is_in_the_money_and_commission_is_per_contract() -> None:
    """Of a law for percent commissions, which tidewalk does not have: commissions of futures are per contract.

    So the multiplier enters the profit and never the commission, and no price level enters the commission.
    """
    # backtrader issue 45: a percent commission that ignores the multiplier.
    assert {field.name for field in dataclasses.fields(CostConfig)} == {
        *("commission_usd", "slippage", "slippage_ticks", "roll_fee_usd")
    }
    for multiplier, profit in ((50.0, 50), (5.0, 5)):
        market = steady_market(ticks=4)  # one point a bar
        market = dataclasses.replace(market, info=dataclasses.replace(market.info, multiplier=multiplier))
        costs = Costs(tick_value_usd=market.info.tick_value_usd, commission_usd=2.25, slippage_ticks=0.0)
        own = held_book(market, [3, 0])
        assert gross_usd(costs, own.gross_ticks.sum()) == 3 * profit
        lifted = dataclasses.replace(market, open_e9=market.open_e9 * 7, exit_open_e9=market.exit_open_e9 * 7)
        for priced in (market, lifted):
            assert fills(priced, own, costs).fees_usd.tolist() == [6.75, 6.75]


def test_b30_every_row_is_charged_what_it_owes_with_flips_and_with_nothing_changed() -> None:
    """Of a law for borrow costs, which futures do not have: no charge is lost on a flip or on a bar without a trade.

    What a bar without a trade can owe here is a roll: the position is the same, and its two sides are due.
    """
    # Gym-Trading-Env issue 23: interest lost on flips, and skipped while the position does not change.
    still = chain_market(
        np.zeros(60, np.int64), 1, bars_per_day=24, roll_at=9
    )  # decision 8, row 5, fills in the new one
    own = held_book(still, [-1, -1, -1, 1, 1, 1, 0])
    assert own.sides.tolist() == [1, 0, 0, 2, 0, 2, 1]
    assert net_usd(own, ES) == -6 * Fraction("2.25")
    spread = held_book(still, [-1, -1, -1, 1, 1, 1, 0], "spread")
    assert (spread.sides.tolist(), spread.rolled.tolist()) == ([1, 0, 0, 2, 0, 0, 1], [0, 0, 0, 0, 0, 1, 0])
    flip = held_book(still, [-1, -1, -1, -1, -1, 2, 0])
    assert flip.sides.tolist() == [1, 0, 0, 0, 0, 3, 2], "a flip at a roll closes the old and opens the new"


def test_b31_the_profit_of_the_exit_is_booked() -> None:
    # freqtrade pull request 7801: long at 100, out at 110; booked after the position was set to flat, it was 0.
    market = steady_market(ticks=40)
    priced = dataclasses.replace(market, open_e9=market.open_e9 - market.open_e9[4] + 100 * 10**9)
    priced = dataclasses.replace(priced, exit_open_e9=priced.open_e9)
    own = held_book(priced, [1, 0])
    (entry,), (left,) = (getattr(trades(fills(priced, own, ES), ES), name) for name in ("entry_price", "exit_price"))
    assert (entry, left) == (100.0, 110.0)
    profit = float(gross_usd(ES, own.gross_ticks.sum())) / 50
    assert (entry + profit) / entry == pytest.approx(1.10)
    assert own.gross_ticks.tolist() == [40, 0]


def limits_of(**usd: float) -> Limits:
    limits = limit_ops.resolve(LimitConfig(**usd), ES)
    assert limits is not None
    return limits


def test_b32_no_money_is_made_at_zero_and_exactly_zero_is_ruin() -> None:
    # TorchTrade issue 159, pull request 388: max(0, balance) makes money; "below 0" never fires at exactly 0.
    falling = steady_market(ticks=-1)
    market = jax.device_put(falling.on_device())
    wanted = jnp.full(40, 2, jnp.int8)
    span, followed = jnp.array([3, 43], jnp.int32), jax.jit(functools.partial(follow, EnvConfig()))

    def held(capital_usd: float) -> int:
        """Rows that a long position survives: it costs 2.25 to enter and loses 12.50 a bar."""
        path = followed(market, limits_of(capital_usd=capital_usd), span, wanted)
        return int((np.asarray(path) == 2).sum())

    assert held(2.25 + 4 * 12.5) == 4, "equity is exactly 0 after the fourth row"
    assert held(2.25 + 4 * 12.5 + 0.0125) == 5, "a thousandth of a tick is left"
    assert held(2.0) == 1, "the fee alone is more than the capital"
    own = held_book(falling, [1, 0])
    assert net_usd(own, ES) == Fraction("-17.00"), "what is owed is owed: the books do not stop at the capital of 2.00"
    # the reward of the last row carries the whole loss and the closing fill, nothing is clamped
    world = make_world(data=falling, windows=1, seeds=1)
    window = train_window(world, 3, 60)
    program = dataclasses.replace(world.program, lanes=1, agent=_always(world.program.agent, 2))
    bits, cost = jnp.zeros(3, jnp.uint32), CostTicks(jnp.float32(0.18))
    limits = limits_of(capital_usd=2.0)
    act, remembered = (jax.jit(functools.partial(form, program)) for form in (collect, transitions))
    _, words = act(world.market, window, {}, _lanes(20, 1), bits, jnp.float32(0), limits)
    batch = remembered(world.market, window, words[None], cost, jnp.float32(0.9), limits)
    assert float(batch.reward_t[0]) == pytest.approx(0.1 * (-1 - 2 * 0.18))
    assert float(batch.discount_t[0]) == 0.0


@pytest.mark.parametrize("equity", [-1, -16_777_217, -100_000_001, -2_000_000_011])
def test_b33_a_limit_is_met_exactly_however_large_the_account(equity) -> None:
    # TorchTrade pull request 301: 99.99975586 in float32 against 100.0 in float64 decided a bankruptcy.
    account = limit_ops.booked(limit_ops.open_account(), jnp.int32(equity), jnp.int32(7))
    for name in ("capital", "drawdown", "daily_loss"):
        for excess, is_met in ((-1, True), (0, True), (1, False)):
            size = np.array(-equity + excess, np.int32)
            if size <= 0:
                continue
            limits = dataclasses.replace(Limits(np.array(0, np.int32), np.array(0, np.int32)), **{name: size})
            assert bool(limit_ops.is_halted(limits, account, jnp.int32(7))) == is_met, (name, excess)
    limits = Limits(np.array(180, np.int32), np.array(0, np.int32), capital=np.array(-equity, np.int32))
    assert bool(limit_ops.is_over(limits, account))


def test_b34_the_last_mark_and_the_closing_cost_are_in_and_nothing_is_carried_on() -> None:
    # Vibe-Trading pull request 531, backtesting.py issue 304: long 1 into the last bar, 2.25 a side.
    market = steady_market(ticks=1)
    span, wanted = jnp.array([3, 13], jnp.int32), jnp.full(10, 2, jnp.int8)
    path = np.asarray(follow(EnvConfig(), jax.device_put(market.on_device()), None, span, wanted), np.int64) - 1
    assert path.tolist() == [1] * 9 + [0]
    own = held_book(market, path.tolist())
    opens = market.open_e9 // 250_000_000
    assert own.gross_ticks.sum() == opens[13] - opens[4] == 9, "marked up to the open at which the last decision closes"
    assert own.gross_ticks.tolist() == [1] * 9 + [0]
    assert net_usd(own, ES) == 9 * Fraction("12.5") - 2 * Fraction("2.25")
    then = book(market, 13, path)
    assert then.before_lots[0] == 0, "the next range starts flat and pays to enter again"
    assert then.sides.tolist() == own.sides.tolist() == [1, *[0] * 8, 1]


def test_b35_a_train_result_uses_no_bar_after_the_train_months() -> None:
    """Other moves from the end of a window's train months on: what each of its train decisions earns stays."""
    # tick-stock-panel pull request 104: the position open at the train end was closed at prices of the test window.
    signs = planted_signs(182 * 24, 0.7)
    market = chain_market(signs, 10, bars_per_day=24)
    study = plan_study(small_config(Path("none.npz")), [market], compose="scan")
    for window, (first, stop) in zip(study.legs[0].plan.windows, study.windows.train, strict=True):
        for change_from, is_seen in ((window.train.stop, False), (window.train.stop - 3, True)):
            other_signs = np.where(np.arange(len(signs)) >= change_from, -7 * signs, signs)
            other = chain_market(other_signs, 10, bars_per_day=24)
            rows = slice(int(first), int(stop))
            earned, again = (one.move_ticks[rows].tolist() for one in (market, other))
            assert (earned != again) == is_seen, (window.index, change_from)
            scales = (
                fit_windows(study.legs[0].plan, one.features, one.move_ticks).reward_scale[window.index]
                for one in (market, other)
            )
            assert (next(scales) != next(scales)) == is_seen
