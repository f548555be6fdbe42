"""P9: what is trained and chosen never sees the test months, and is fixed before they are traded."""

import dataclasses
import functools
import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support import planted_market, small_config
from tidewalk.core import trees
from tidewalk.market.device import Market, save_market
from tidewalk.run import loop, outcome
from tidewalk.store import checkpoint, layout
from tidewalk.train import epoch as phases
from worlds import base, base_epoch, fresh

SEEDS = 2


def val_stop(window: int) -> int:
    """The bar after the last one of the validation months: the last decision closes at the open of the bar before."""
    return int(base().windows.val[window, 1]) + 1


def poisoned(market: Market, first: int) -> Market:
    """The market with bars from `first` on that poison whatever touches them."""
    bars = jnp.arange(market.flags.shape[0])
    return dataclasses.replace(
        market,
        move_ticks=jnp.where(bars >= first, jnp.int32(1_000_003), market.move_ticks),
        flags=jnp.where(bars >= first, jnp.int32(63), market.flags),
        features=jnp.where((bars >= first)[:, None], jnp.float32(jnp.nan), market.features),
        session_id=jnp.where(bars >= first, jnp.int32(10**6), market.session_id),
    )


def cut(market: Market, stop: int) -> Market:
    """Only the bars that the train and validation months reach: nothing else is there."""
    return jax.tree.map(lambda leaf: leaf[:stop], market)


@functools.cache
def history(first_hidden: int | None = None, *, is_cut: bool = False) -> dict[str, np.ndarray]:
    """All that is known after two epochs of the base world, with the bars from `first_hidden` on poisoned or gone."""
    world, epoch = base(), base_epoch()
    if first_hidden is not None:
        hide = cut if is_cut else poisoned
        world = dataclasses.replace(world, market=hide(world.market, first_hidden))
    if is_cut:
        epoch = jax.jit(functools.partial(phases.fused_epoch, world.program))
    state, _ = epoch(*world.fixed, fresh(world))
    state, _ = epoch(*world.fixed, state)
    return trees.to_named(state)


def check_same(window: int, other: dict[str, np.ndarray]) -> None:
    """Weights, replay, chosen epoch and its score of the window's members are the same bytes."""
    rows = slice(window * SEEDS, (window + 1) * SEEDS)
    for name, value in history().items():
        if name == "clock":
            continue
        left, right = ((of[:, rows] if name == "replay" else of[rows]) for of in (value, other[name]))
        assert left.tobytes() == right.tobytes(), (window, name)


@pytest.mark.parametrize("window", [0, 1])
def test_poison_in_the_test_months_reaches_neither_weights_nor_the_choice(window):
    check_same(window, history(val_stop(window)))


@pytest.mark.parametrize("window", [0, 1])
def test_poison_in_the_last_bar_of_validation_is_seen(window):
    """The detector can go red: one bar earlier lies the move of a validation decision, or the bar that closes it."""
    with pytest.raises(AssertionError):
        check_same(window, history(val_stop(window) - 2))


@pytest.mark.slow
@pytest.mark.parametrize("window", [0, 1])
def test_a_market_that_ends_with_the_validation_months_gives_the_same_bytes(window):
    """Train and choose from arrays in which the test months do not exist."""
    check_same(window, history(val_stop(window), is_cut=True))


def digest(folder: Path) -> str:
    hashes = "".join(layout.sha256_file(path) for path in sorted(folder.glob("*.safetensors")))
    return hashlib.sha256(hashes.encode()).hexdigest()


@pytest.mark.slow
def test_policies_are_written_and_hashed_before_a_test_bar_is_traded(tmp_path, monkeypatch):
    """What was fixed then is what is traded: the digest of the manifest, the files, and the weights on the device."""
    save_market(tmp_path / "planted.npz", planted_market(days=122))
    seen = {}
    settle = outcome.settle

    def watched(engine, state):
        run = layout.run_paths(tmp_path / "run")
        seen["digest"] = layout.read_manifest(run)["policies_sha256"]
        seen["files"] = digest(run.policies)
        seen["weights"] = trees.to_named(jax.device_get(state.best.params))
        return settle(engine, state)

    monkeypatch.setattr(outcome, "settle", watched)
    run = layout.open_run(loop.train(small_config(tmp_path / "planted.npz", tmp_path / "run", epochs=1)))
    assert seen["digest"] == seen["files"] == digest(run.policies) == layout.read_manifest(run)["policies_sha256"]
    for seed in range(SEEDS):
        arrays, _ = checkpoint.load_policy(run.policies / f"window-00-seed-{seed:02d}.safetensors")
        for name, value in seen["weights"].items():
            assert arrays[name].tobytes() == value[seed].tobytes(), name
