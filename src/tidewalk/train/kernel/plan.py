"""Which kernel fits a program: its sizes, its memory on chip, and why another one is needed where none fits.

Kernels multiply halves, scaled as `layout.cuh` says: weights up to 255 and activations up to 4,094 can be held. A
network that grows beyond has a loss that is not finite, as one that diverges.
"""

import dataclasses
import functools
import gzip
import re
from importlib import resources
from typing import Any, ClassVar

from tidewalk.agents.dqn import DQNConfig
from tidewalk.core.words import counted
from tidewalk.train.kernel.tables import FLAG_WORDS
from tidewalk.train.population import Program

OUTPUTS = 8
"""Output units that a kernel holds, padding included."""
PRODUCTS = {"float32": 3, "tf32": 1}
"""Products of halves that make up one of a precision: three keep 22 bits of a number, one keeps tf32's eleven."""
TAKEN_SINCE = "CUDA 12.3"
"""The first CUDA whose drivers take the assembly text, PTX ISA 8.3."""
MOST_PASSES = 10_000
"""Passes of a launch one after the other, at most a third of a second on an H200: a GPU that has a screen as well may
end a kernel that runs for seconds. A vector step that takes four times as many is left to XLA."""
_PASS_ROWS, _AT_A_TIME = 64, 32
"""Rows of a batch in a pass; and members that even a small GPU works on at a time."""
_WIDTHS, _OBSERVED = (64, 128), (32, 48, 64, 128)
_MIN_CAPABILITY, _CLUSTER_CAPABILITY = 8.0, 9.0
_CLUSTER = 4
"""Blocks that share a member where there are few: of the widest networks, which keep that many busy."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One compiled kernel: observations of `observed` columns, two hidden layers of `hidden` units.

    A member is worked on by `cluster` blocks, on as many multiprocessors; its results do not depend on their number.
    """

    observed: int
    hidden: int
    products: int
    cluster: int = 1

    source: ClassVar[str] = "learn"

    @property
    def name(self) -> str:
        """Of the kernel and of its file."""
        shared = f"_c{self.cluster}" if self.cluster > 1 else ""
        return f"{self.source}_d{self.observed}_h{self.hidden}_p{self.products}{shared}"

    @property
    def architecture(self) -> str:
        """What the source is compiled for."""
        return "compute_80" if self.cluster == 1 else "compute_90"

    @property
    def defines(self) -> dict[str, int]:
        """Sizes that the source is compiled for."""
        sizes = {"D": self.observed, "H": self.hidden, "ROWS": self.rows, "PRODUCTS": self.products}
        return {**sizes, "SPLIT": self.split, "CLUSTER": self.cluster}

    @property
    def rows(self) -> int:
        """Rows of a batch that are worked on at a time."""
        return 32 if self.observed == max(_OBSERVED) and self.hidden == max(_WIDTHS) else 64

    @property
    def split(self) -> int:
        """Warps that share 16 hidden units."""
        return 2 if self.cluster == 1 else self.rows // 16

    @property
    def threads(self) -> int:
        """Threads of a block: `split` warps for every 16 of its hidden units."""
        return 2 * self.hidden // self.cluster * self.split

    @property
    def scratch(self) -> tuple[int, int, int]:
        """Numbers of a member that a launch keeps in its own order (see `layout.cuh`): networks, fours, 4."""
        networks = 3 if self.cluster == 1 else 4
        return networks, (self.observed // 8 + self.hidden // 8 + 2) * 2 * self.hidden, 4

    @property
    def shared_bytes(self) -> int:
        """Memory on chip that a block needs: the offsets of `layout.cuh`."""
        inputs, units, rows = self.observed + 8, self.hidden + 8, self.rows
        network = self.hidden * (self.observed + self.hidden)
        positions = OUTPUTS - 1
        tables = -(-((2 * FLAG_WORDS + 4 * positions + 1) * positions) // 4) * 4
        if self.cluster > 1:
            head, own = OUTPUTS * (self.hidden + 4) + 2 * self.hidden + OUTPUTS, rows // self.cluster
            parts = 3 * own * (self.observed + self.hidden)
            return 4 * (2 * (network + head) + parts + 2 * self.observed + 24 * own + 4 * rows + 80 + tables)
        head = OUTPUTS * units + 2 * self.hidden + OUTPUTS
        parts = min(self.threads // 32 // (rows // 16), self.hidden // 32)
        staged, output = 2 * max(2, self.split) * 8 * self.hidden, rows * ((parts + 1) * OUTPUTS + 24)
        activations = rows * (inputs + 2 * units) + max(output, staged)
        size = 4 * (network + 2 * head + activations + 2 * self.observed + 24 * rows + 80 + tables)
        raw = 4 * rows * self.observed
        return size + raw if self.hidden == max(_WIDTHS) and size + raw <= 227 * 1024 else size


@dataclasses.dataclass(frozen=True)
class MapPlan(Plan):
    """The kernel of the greedy maps: here `observed` counts features alone, and a bar is a row."""

    source: ClassVar[str] = "maps"

    @property
    def split(self) -> int:
        """A warp has its 16 hidden units for itself."""
        return 1

    @property
    def shared_bytes(self) -> int:
        """Memory on chip that a block needs: the offsets of `MapShape` in `maps.cuh`."""
        inputs, units, rows, positions = self.observed + 8, self.hidden + 8, self.rows, OUTPUTS - 1
        head = OUTPUTS * units + 2 * self.hidden + OUTPUTS
        weights = self.hidden * (self.observed + positions) + head
        activations = rows * (inputs + 2 * units) + self.observed * (rows + 1) + positions * self.hidden * OUTPUTS
        return 4 * (weights + activations + 2 * self.observed + 2 * self.threads + 32 + 2 * FLAG_WORDS * positions)


@dataclasses.dataclass(frozen=True)
class WalkPlan:
    """The kernel that goes through the maps of a range: the same whatever the network."""

    source: ClassVar[str] = "walk"
    architecture: ClassVar[str] = "compute_80"
    name: ClassVar[str] = "walk"
    defines: ClassVar[dict[str, int]] = {}
    threads: ClassVar[int] = 1024
    shared_bytes: ClassVar[int] = 4 * ((2 + 3 * 5) * 1024 + (4 * (OUTPUTS - 1) + 1) * (OUTPUTS - 1) + 1)
    """The offsets of `walk.cuh`."""


AnyPlan = Plan | WalkPlan
PLANS = tuple(Plan(d, h, p) for h in _WIDTHS for d in _OBSERVED for p in PRODUCTS.values())
CLUSTER_PLANS = tuple(Plan(48, max(_WIDTHS), p, _CLUSTER) for p in PRODUCTS.values())
MAP_PLANS = tuple(MapPlan(plan.observed, plan.hidden, plan.products) for plan in PLANS)
ALL_PLANS: tuple[AnyPlan, ...] = (*PLANS, *CLUSTER_PLANS, *MAP_PLANS, WalkPlan())


def plan_for(program: Program, precision: str) -> Plan:
    """The smallest kernel that holds the networks of a program that `unsupported` has no objection to."""
    return Plan(*_sizes(program, program.env.observation_size(program.num_features)), PRODUCTS[precision])


def shared_out(plan: Plan, members: int, device: Any) -> Plan:
    """A plan by which more multiprocessors of a device work for few members; else the same.

    A cluster lies within a group of multiprocessors, of which there are up to 18 in one: what a group has left over
    takes no cluster.
    """
    if float(getattr(device, "compute_capability", "0")) < _CLUSTER_CAPABILITY:
        return plan
    places = multiprocessors(device) // 18 * (18 // _CLUSTER)
    holding = (other for other in CLUSTER_PLANS if _holds(other, plan) and other.shared_bytes <= _shared_memory(device))
    return next(holding, plan) if members <= places else plan


def _holds(cluster: Plan, plan: Plan) -> bool:
    """Whether the kernel of a cluster can take the place of another."""
    is_same = cluster.hidden == plan.hidden and cluster.products == plan.products
    return is_same and cluster.observed >= plan.observed


def map_plan_for(program: Program, precision: str) -> MapPlan:
    """The kernel of the greedy maps that goes with that of `plan_for`."""
    return MapPlan(*_sizes(program, program.env.lookback * program.num_features), PRODUCTS[precision])


def _sizes(program: Program, observed: int) -> tuple[int, int]:
    """Columns and units of the smallest kernel that holds `observed` columns and the layers of a program."""
    width = max(program.agent.config.hidden)
    return min(size for size in _OBSERVED if size >= observed), min(size for size in _WIDTHS if size >= width)


def unsupported(program: Program, precision: str, *, has_limits: bool) -> str | None:
    """Why no kernel can run the vector steps of a program, in words; None where one can.

    Args:
        program: static settings.
        precision: named precision of all matrix products.
        has_limits: whether accounts are counted while an agent learns.
    """
    config = program.agent.config
    if not isinstance(config, DQNConfig):
        return "it learns by DQN only"
    observed, outputs = program.env.observation_size(program.num_features), program.env.num_positions + config.duelling
    reasons = {
        f"it computes in {' or '.join(PRODUCTS)}, not in {precision}": precision not in PRODUCTS,
        "it keeps no accounts (--daily-loss-usd, --trailing-drawdown-usd)": has_limits,
        f"it holds two hidden layers, not {len(config.hidden)}": len(config.hidden) != 2,
        f"it holds layers of up to {max(_WIDTHS)} units, not {max(config.hidden)}": max(config.hidden) > max(_WIDTHS),
        f"it holds observations of up to {max(_OBSERVED)} columns, not {observed}": observed > max(_OBSERVED),
        f"it holds {OUTPUTS} outputs, not the {outputs} of {program.env.num_positions} positions": outputs > OUTPUTS,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def step_passes(program: Program, members: int) -> int:
    """Passes of a vector step and its updates that follow one another, by an estimate that knows no device."""
    agent, turns = program.agent, -(-members // _AT_A_TIME)
    updates = agent.updates_per_step * -(-agent.batch_size // _PASS_ROWS)
    return turns * (-(-program.lanes // _PASS_ROWS) + updates)


def too_long(program: Program, members: int) -> str | None:
    """Why a single vector step would take a kernel too long, in words; None where it does not."""
    if step_passes(program, members) <= 4 * MOST_PASSES:
        return None
    agent = program.agent
    updates = f"{counted(agent.updates_per_step, 'update')} of {agent.batch_size} transitions"
    step = f"{counted(program.lanes, 'lane')} and {updates}"
    return f"a vector step of {step} for {counted(members, 'member')} would keep the device busy for seconds"


def unfit(device: Any, plan: Plan) -> str | None:
    """Why a device cannot run a kernel, in words; None where it can."""
    said = f"{device.device_kind} {device.client.platform_version}".upper()
    if device.platform != "gpu" or ("NVIDIA" not in said and "CUDA" not in said):
        return "it needs an NVIDIA GPU"
    capability = float(getattr(device, "compute_capability", "0"))
    if capability < _MIN_CAPABILITY:
        return f"it needs compute capability {_MIN_CAPABILITY} or more, and {device.device_kind} has {capability}"
    shared = _shared_memory(device)
    if shared < plan.shared_bytes:
        narrow = dataclasses.replace(plan, hidden=min(_WIDTHS))
        remedy = f"; --hidden of up to {narrow.hidden} would fit" if narrow.shared_bytes <= shared else ""
        return f"it needs {plan.shared_bytes} bytes of memory on chip, and {device.device_kind} has {shared}{remedy}"
    return None


def multiprocessors(device: Any) -> int:
    """Multiprocessors of a device; 0 where it has none, or does not say."""
    return int(getattr(device, "core_count", 0))


def _shared_memory(device: Any) -> int:
    """Most shared memory of a block: as the device says, or by its compute capability.

    The table is that of section 5.4 of the CUDA C++ Programming Guide 13.0.
    """
    said = int(getattr(device, "shared_memory_per_block_optin", 0))
    kib = {8.0: 163, 8.6: 99, 8.7: 163, 8.9: 99, 9.0: 227, 10.0: 227, 10.3: 227, 11.0: 227, 12.0: 99, 12.1: 99}
    return said or kib.get(float(device.compute_capability), 99) * 1024


@functools.cache
def ptx(plan: AnyPlan) -> str:
    """Assembly text of a kernel, as shipped with the package."""
    packed = resources.files("tidewalk.train.kernel").joinpath("ptx", f"{plan.name}.ptx.gz").read_bytes()
    return gzip.decompress(packed).decode("ascii")


def source_hash(text: str) -> str | None:
    """SHA-256 of the sources that a text says it was built from."""
    found = re.match(r"// tidewalk sources ([0-9a-f]{64})\n", text)
    return found.group(1) if found else None
