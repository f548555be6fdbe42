"""Networks as equinox modules whose leaves are all arrays: a population is the same module, members first."""

import equinox as eqx
import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Float32, Key


class DuellingMLP(eqx.Module):
    """Multi-layer perceptron with a duelling head (Wang et al. 2016, eq. 9): Q = V + A - mean(A).

    Value and advantages leave one output layer of A+1 units: one matrix product instead of two.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, key: Key[Array, ""], in_size: int, hidden: tuple[int, ...], num_actions: int) -> None:
        """Weights are drawn with equinox's default (uniform within 1/sqrt(fan-in))."""
        sizes = (in_size, *hidden, num_actions + 1)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))

    def __call__(self, observation: Float32[Array, "D"]) -> Float32[Array, "A"]:
        """Action values of one observation."""
        hidden = observation
        for layer in self.layers[:-1]:
            hidden = jax.nn.relu(layer(hidden))
        out = self.layers[-1](hidden)
        value, advantage = out[0], out[1:]
        return value + advantage - jnp.mean(advantage)
