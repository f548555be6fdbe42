"""Networks as equinox modules whose leaves are all arrays: a population is the same module, members first."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tidewalk.core.arrays import Array, Float32, Key


class QNetwork(eqx.Module):
    """Multi-layer perceptron of action values, plain or with a duelling head.

    The duelling head (Wang et al. 2016, eq. 9) is Q = V + A - mean(A). Value and advantages leave one output layer of
    A+1 units: one matrix product instead of two.
    """

    layers: tuple[eqx.nn.Linear, ...]
    is_duelling: bool = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], in_size: int, hidden: tuple[int, ...], num_actions: int, *, is_duelling: bool
    ) -> None:
        """Weights are drawn with equinox's default (uniform within 1/sqrt(fan-in))."""
        sizes = (in_size, *hidden, num_actions + is_duelling)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.is_duelling = is_duelling

    def __call__(self, observation: Float32[Array, "*batch D"]) -> Float32[Array, "*batch A"]:
        """Action values of a batch of observations, or of one; a layer is one matrix product for all of them."""
        return self._after_first(_dense(self.layers[0], observation))

    def table(self, seen: Float32[Array, "LF"], positions: slice) -> Float32[Array, "R A"]:
        """Action values of one bar for a range of positions held; observations end with the position, one-hot.

        What the first layer makes of the features is the same for every position, so it is computed once.
        """
        first: Any = self.layers[0]
        shared = jnp.matmul(seen, first.weight[:, : seen.shape[0]].T) + first.bias
        return self._after_first(shared[None, :] + first.weight[:, seen.shape[0] :].T[positions])

    def _after_first(self, out: Float32[Array, "*batch H"]) -> Float32[Array, "*batch A"]:
        for layer in self.layers[1:]:
            out = _dense(layer, jax.nn.relu(out))
        if not self.is_duelling:
            return out
        value, advantage = out[..., :1], out[..., 1:]
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)


def _dense(layer: eqx.nn.Linear, inputs: Float32[Array, "*batch I"]) -> Float32[Array, "*batch O"]:
    out, bias = jnp.matmul(inputs, layer.weight.T), jnp.asarray(layer.bias)
    return out + jnp.broadcast_to(bias, out.shape)
