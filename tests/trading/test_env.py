import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import chain_market, planted_market, planted_signs, random_half_spreads
from tidewalk.core.errors import ConfigError
from tidewalk.market.device import CLOSING
from tidewalk.trading import env as env_ops
from tidewalk.trading.account import allowed, book
from tidewalk.trading.env import EnvConfig, Scaler


def device_market(market):
    return jax.tree.map(jnp.asarray, market.on_device())


def test_step_agrees_with_the_books_on_random_paths():
    data = chain_market(planted_signs(200, 0.5), 3, bars_per_day=24, roll_at=100)
    market = device_market(data)
    for closing in (False, True):
        env = EnvConfig(positions=2, flat_at_close=closing)
        wanted = np.random.default_rng(1).integers(-2, 3, 150)
        account = book(data, 10, allowed(data, env, 10, wanted))
        bars = jnp.arange(10, 159)
        before = jnp.asarray(account.before_lots[:-1] + 2, jnp.int32)
        taken = env_ops.step(
            env, market.move_ticks[bars], market.flags[bars], before, jnp.asarray(wanted[:-1] + 2, jnp.int32)
        )
        assert np.array_equal(taken.gross_ticks, account.gross_ticks[:-1])
        assert np.array_equal(taken.sides, account.sides[:-1])
        assert np.array_equal(env_ops.lots(env, taken.position), account.after_lots[:-1])


def test_step_pays_half_the_spread_of_the_bar_it_fills_in_as_the_books_do():
    data = random_half_spreads(chain_market(planted_signs(200, 0.5), 3, bars_per_day=24, roll_at=100))
    market, env = device_market(data), EnvConfig(positions=2)
    account = book(data, 10, allowed(data, env, 10, np.random.default_rng(1).integers(-2, 3, 150)))
    bars = jnp.arange(10, 160)
    before, after = (jnp.asarray(path + 2, jnp.int32) for path in (account.before_lots, account.after_lots))
    half_ticks = env_ops.half_spread(market, bars)
    taken = env_ops.step(env, market.move_ticks[bars], market.flags[bars], before, after, half_ticks)
    assert np.array_equal(taken.crossed_ticks, account.crossed_ticks)
    net = env_ops.reward(taken, jnp.float32(0.25), jnp.float32(1.0))
    assert np.array_equal(net, account.gross_ticks - 0.25 * account.sides - account.crossed_ticks)
    assert env_ops.half_spread(device_market(planted_market(days=3)), bars) is None


def test_reward_is_net_pnl_in_units_of_volatility():
    taken = env_ops.Step(gross_ticks=jnp.int32(10), sides=jnp.int32(2), position=jnp.int32(2))
    assert float(env_ops.reward(taken, jnp.float32(0.7), jnp.float32(0.1))) == pytest.approx(0.86)


# validity.md B20: the observation of bar t ends with bar t
def test_observation_of_a_bar_ends_with_that_bar_and_the_position():
    data = planted_market(days=5)
    index = np.arange(len(data.move_ticks), dtype=np.float32)
    market = env_ops.Market(
        jnp.asarray(data.move_ticks), jnp.asarray(data.flags), jnp.asarray(index[:, None]), jnp.asarray(data.session_id)
    )
    env = EnvConfig(lookback=3)
    scaler = Scaler(center=jnp.full(1, 50.0), scale=jnp.ones(1))
    seen = env_ops.observe(env, market, scaler, jnp.int32(52), jnp.int32(0))
    assert seen.tolist() == [0.0, 1.0, 2.0, 1.0, 0.0, 0.0]
    assert env.observation_size(1) == 6


def test_scaled_features_are_clipped_at_ten():
    data = planted_market(days=5)
    scaler = Scaler(center=jnp.zeros(4), scale=jnp.full(4, 1e6))
    seen = env_ops.see(EnvConfig(), device_market(data), scaler, jnp.int32(5))
    assert np.abs(np.asarray(seen)).max() == 10.0


def test_flat_at_close_overrides_the_action_only_where_the_session_ends():
    env = EnvConfig(flat_at_close=True)
    flags = jnp.array([0, CLOSING], jnp.int32)
    assert env_ops.target(env, flags, jnp.array([2, 2], jnp.int32)).tolist() == [2, 1]
    assert env_ops.target(EnvConfig(), flags, jnp.array([2, 2], jnp.int32)).tolist() == [2, 2]


@pytest.mark.parametrize(("bad", "flag"), [({"positions": 0}, "--positions"), ({"lookback": 0}, "--lookback")])
def test_impossible_environments_are_refused_by_flag(bad, flag):
    with pytest.raises(ConfigError, match=flag):
        EnvConfig(**bad)
