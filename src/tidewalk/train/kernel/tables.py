"""Rules and costs as small integer tables: what the environment allows and counts, asked once for every case."""

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.trading import env as env_ops
from tidewalk.trading.costs import counts
from tidewalk.trading.env import EnvConfig

FLAG_WORDS = 64
"""Values that the flags of a bar can take."""


def rule_tables(env: EnvConfig) -> np.ndarray:
    """All that a kernel must know of rules and costs, int32, one after another.

    Returns:
        Bounds `[64, P, 2]` (lowest and highest position index by flags and position), contract sides `[2, P, P]` (by
        whether the fill is a roll, position and action), lots rolled by a spread `[2, P, P]`, and contracts `[P]` of
        each position.
    """
    count = env.num_positions
    with jax.ensure_compile_time_eval():
        flags, held = jnp.meshgrid(jnp.arange(FLAG_WORDS, dtype=jnp.int32), _indices(count), indexing="ij")
        bounds = jnp.stack(env_ops.bounds(env, flags, held), axis=-1)
        is_roll, held, action = jnp.meshgrid(_indices(2), _indices(count), _indices(count), indexing="ij")
        sides, rolled = counts(env_ops.lots(env, held), env_ops.lots(env, action), is_roll, env.roll_as)
        rolled = jnp.zeros_like(sides) if rolled is None else rolled
        parts = (bounds, sides, rolled, env_ops.lots(env, _indices(count)))
        return np.concatenate([np.asarray(part, np.int32).ravel() for part in parts])


def _indices(count: int) -> jax.Array:
    return jnp.arange(count, dtype=jnp.int32)
