"""Physical limits of one update, one epoch and one greedy pass: arithmetic and memory traffic, nothing else.

A multi-layer perceptron with two hidden layers of H units, D inputs and A outputs (one more with a duelling head),
batch B, float32. FLOP of an update: forward passes of the online and the target network, gradients to the weights and
to the activations (not to the input), one more forward pass for a double DQN. Bytes: parameters, target and both
moments read and written once, parameters read once more for acting, and the batch. The unfused figure is what a
compiler that keeps activations in memory moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """Sizes of a perceptron."""

    inputs: int
    hidden: tuple[int, ...]
    outputs: int

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.outputs)

    @property
    def weights(self) -> int:
        """W, without biases."""
        return sum(a * b for a, b in zip(self.widths[:-1], self.widths[1:], strict=True))

    @property
    def parameters(self) -> int:
        """P, weights and biases."""
        return self.weights + sum(self.widths[1:])


@dataclass(frozen=True)
class Machine:
    """What a device can do at most."""

    flop_per_s: float
    bytes_per_s: float
    multiprocessors: int = 1
    """Parts that one member cannot share with the others when a kernel holds it on chip."""


H200 = {
    "float32": Machine(60e12, 4.3e12, 132),
    "tf32": Machine(400e12, 4.3e12, 132),
    "bf16": Machine(790e12, 4.3e12, 132),
}
"""Attainable rates of one NVIDIA H200; 4.3 TB/s of its 4.8."""


def state_bytes(network: Network) -> int:
    """Parameters, target and both moments of Adam."""
    return 16 * network.parameters


def update_flop(network: Network, batch: int, *, double: bool, lanes: int = 0) -> int:
    """FLOP of an update, and of acting in `lanes` environments before it."""
    passes = (5 if double else 4) * network.weights - network.inputs * network.hidden[0]
    return 2 * batch * passes + 2 * lanes * network.weights


def fused_bytes(network: Network, batch: int) -> int:
    """Least traffic of an update: every array touched once, target moved softly."""
    return 36 * network.parameters + _batch_bytes(network, batch)


def unfused_bytes(network: Network, batch: int) -> int:
    """Traffic of an update whose activations go through memory: 48 P, eight times the activations, and the batch."""
    activations = 4 * batch * (network.inputs + sum(network.hidden))
    return 48 * network.parameters + 8 * activations + _batch_bytes(network, batch)


def _batch_bytes(network: Network, batch: int) -> int:
    return 4 * batch * (2 * network.inputs + 3)


def seconds(machine: Machine, flop: float, traffic: float) -> float:
    """The longer of arithmetic and traffic."""
    return max(flop / machine.flop_per_s, traffic / machine.bytes_per_s)


def alone_s(machine: Machine, flop: float) -> float:
    """Arithmetic of one member on one multiprocessor: the floor of a kernel that keeps it on chip."""
    return flop * machine.multiprocessors / machine.flop_per_s


def greedy_flop(network: Network, bars: int, positions: int) -> int:
    """FLOP of a greedy pass: the first layer once per bar, the others once per (bar, position)."""
    first = network.inputs * network.hidden[0]
    return 2 * bars * (first + positions * (network.weights - first))


def table(networks: Sequence[Network], batch: int) -> list[dict[str, float]]:
    """Floors of plain DQN on one H200, microseconds per agent-update."""
    rows = []
    for network in networks:
        flop = update_flop(network, batch, double=False)
        rows.append(
            {
                "parameters": network.parameters,
                "state_kb": state_bytes(network) / 1e3,
                "mflop": flop / 1e6,
                "fused_kb": fused_bytes(network, batch) / 1e3,
                "fused_us": fused_bytes(network, batch) / H200["float32"].bytes_per_s * 1e6,
                **{f"{name}_us": flop / machine.flop_per_s * 1e6 for name, machine in H200.items()},
                "unfused_us": unfused_bytes(network, batch) / H200["float32"].bytes_per_s * 1e6,
            }
        )
    return rows
