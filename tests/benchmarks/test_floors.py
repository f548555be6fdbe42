"""The formulas of the physical limits against a table worked out by hand: one H200, batch 64, plain DQN."""

import floors
import pytest
from floors import Machine, Network

# network, P, state in KB, MFLOP, fused KB, fused us, float32 / tf32 / bf16 us, unfused us
BY_HAND = [
    ((32, 128), 21_123, 338, 10.2, 778, 0.181, (0.169, 0.025, 0.013), 0.377),
    ((64, 128), 25_219, 404, 11.7, 941, 0.219, (0.196, 0.029, 0.015), 0.442),
    ((128, 128), 33_411, 535, 14.9, 1_269, 0.295, (0.248, 0.037, 0.019), 0.571),
    ((32, 256), 75_011, 1_200, 37.1, 2_718, 0.632, (0.618, 0.093, 0.047), 1.10),
    ((128, 256), 99_587, 1_593, 46.5, 3_651, 0.849, (0.776, 0.116, 0.059), 1.43),
]


def of(sizes: tuple[int, int]) -> Network:
    inputs, units = sizes
    return Network(inputs, (units, units), 3)


@pytest.mark.parametrize("row", BY_HAND, ids=lambda row: "-".join(map(str, row[0])))
def test_the_table_of_floors(row: tuple) -> None:
    (found,) = floors.table([of(row[0])], batch=64)
    assert found["parameters"] == row[1]
    assert round(found["state_kb"]) == row[2]
    assert round(found["mflop"], 1) == row[3]
    assert round(found["fused_kb"]) == pytest.approx(row[4], abs=1)
    assert found["fused_us"] == pytest.approx(row[5], abs=6e-4)
    assert [found[f"{name}_us"] for name in ("float32", "tf32", "bf16")] == pytest.approx(row[6], abs=6e-4)
    assert found["unfused_us"] == pytest.approx(row[7], abs=4e-3)


def test_flop_of_an_update_by_hand() -> None:
    """Two inputs, three hidden units twice, one output: W = 6 + 9 + 3."""
    network = Network(2, (3, 3), 1)
    assert network.weights == 18
    assert network.parameters == 18 + 3 + 3 + 1
    plain = 18 + 18 + 18 + (18 - 6)  # online, target, to the weights, to the activations without the input
    assert floors.update_flop(network, 5, double=False) == 2 * 5 * plain
    assert floors.update_flop(network, 5, double=True, lanes=7) == 2 * 5 * (plain + 18) + 2 * 7 * 18


def test_a_greedy_pass_computes_the_first_layer_once_per_bar() -> None:
    network = Network(2, (3, 3), 1)
    assert floors.greedy_flop(network, bars=10, positions=4) == 2 * 10 * (6 + 4 * 12)


def test_the_longer_of_arithmetic_and_traffic_counts() -> None:
    machine = Machine(flop_per_s=1e12, bytes_per_s=1e9, multiprocessors=10)
    assert floors.seconds(machine, flop=3e12, traffic=2e9) == 3.0
    assert floors.seconds(machine, flop=1e12, traffic=2e9) == 2.0
    assert floors.alone_s(machine, flop=1e11) == 1.0
