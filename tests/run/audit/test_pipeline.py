"""The audit of scaler, training, selection, observations and actions: green as it is, red with every planted fault."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import audit_world as world
from tidewalk.market import windows
from tidewalk.run import engine, study
from tidewalk.run.audit import bench as benches
from tidewalk.run.audit import controls, pipeline
from tidewalk.run.audit.bench import Bench, Run
from tidewalk.trading import account
from tidewalk.trading import env as env_ops
from tidewalk.train import evaluate


def mutated(*programs: str) -> tuple[Bench, Run]:
    """Bench and base as the pipeline is now; programs that the mutation changes are compiled anew."""
    made = {"see": benches._seen, "members": evaluate.trade_members}
    clean = world.bench()
    changed = {name: jax.jit(functools.partial(made[name], clean.program)) for name in programs}
    bench = dataclasses.replace(clean, markets=world.markets(), **changed)
    return bench, benches.train(bench, bench.markets.base)


# ---- as it is


def test_the_pipeline_as_it_is_passes() -> None:
    bench, base = world.bench(), world.base()
    checks = [
        pipeline.repeat_check(bench, base),
        pipeline.tail_check(bench, base, "other", only_one=False),
        pipeline.tail_check(bench, base, "huge", only_one=False),
        pipeline.tail_check(bench, base, "huge", only_one=True),
        pipeline.teeth_check(bench, base),
        pipeline.val_check(bench, base),
        pipeline.test_months_check(bench, base, "other"),
        pipeline.test_months_check(bench, base, "huge"),
        pipeline.observation_check(bench, base, 6, 0),
        pipeline.action_check(bench, base, 6, 0),
        pipeline.ledger_check(bench, base, 0),
        pipeline.scaler_check(bench, base),
    ]
    assert [(check.name, check.status) for check in checks if check.status != "pass"] == []
    assert "scores change" in checks[5].found, "validation has to be seen by the selection"
    assert not checks[9].found.startswith("0 changes"), "the policies have to act"


@pytest.mark.slow
def test_the_bench_trains_as_the_engine_does() -> None:
    """Same weights, to the rounding of another placement, and the same scores after one epoch."""
    bench, base = world.bench(), world.base()
    made, state = engine.start(benches.study_of(bench, bench.markets.base))
    _, metrics, _ = made.run_epoch(state)
    np.testing.assert_allclose(np.asarray(metrics["score"]), base.scores[0], rtol=1e-3)


# ---- mutations of the host side share the compiled programs


def test_a_scaler_of_all_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = windows.fit_windows

    def of_all_rows(plan, features, move_ticks):
        fitted = fit(plan, features, move_ticks)
        mean, std = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
        scale = (1 / np.maximum(std, 1e-6))[None].astype(np.float32)
        return dataclasses.replace(fitted, center=mean[None].astype(np.float32), scale=scale)

    monkeypatch.setattr(study, "fit_windows", of_all_rows)
    bench, base = mutated()
    assert pipeline.scaler_check(bench, base).status == "LEAK"
    check = pipeline.tail_check(bench, base, "other", only_one=False)
    assert (check.stage, check.status) == ("scaler", "LEAK")
    assert pipeline.tail_check(bench, base, "huge", only_one=True).status == "LEAK"
    assert "the scaler" in pipeline.test_months_check(bench, base, "other").found
    assert pipeline.val_check(bench, base).status == "LEAK"


def test_a_unit_of_reward_of_all_moves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = windows.fit_windows
    monkeypatch.setattr(
        study,
        "fit_windows",
        lambda plan, features, moves: dataclasses.replace(
            fit(plan, features, moves), reward_scale=np.asarray([1 / moves.std()], np.float32)
        ),
    )
    bench, base = mutated()
    assert pipeline.tail_check(bench, base, "other", only_one=False).stage == "scaler"


def shifted_ranges(name: str, bars: int) -> Callable[..., dict[str, np.ndarray]]:
    ranges = windows.decision_ranges

    def shifted(plan: windows.WindowPlan) -> dict[str, np.ndarray]:
        found = ranges(plan)
        return found | {name: found[name] + np.int32(bars)}

    return shifted


def test_train_decisions_that_reach_beyond_the_purge_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "decision_ranges", shifted_ranges("train", 3))
    bench, base = mutated()
    check = pipeline.tail_check(bench, base, "other", only_one=False)
    assert (check.stage, check.status) == ("training", "LEAK")
    assert "Is the purge as long" in check.details[0]


def test_without_a_purge_targets_that_reach_into_validation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without purge the train range ends where validation begins; decisions up to its last bar read beyond it."""
    monkeypatch.setattr(windows, "decision_ranges", shifted_ranges("train", 2))
    no_purge = dataclasses.replace(world.CONFIG.windows, purge_bars=0)
    clean = world.bench()
    config = dataclasses.replace(clean.config, windows=no_purge)
    bench = benches.bench_of(dataclasses.replace(world.CONFIG, windows=no_purge), world.markets(), world.EPOCHS)
    bench = dataclasses.replace(clean, config=config, markets=world.markets(), program=bench.program)
    base = benches.train(bench, bench.markets.base)
    assert pipeline.window_of_bench(base).train.stop == pipeline.window_of_bench(base).val.first
    assert pipeline.val_check(bench, base).status == "LEAK"
    monkeypatch.undo()
    base = benches.train(bench, bench.markets.base)
    assert pipeline.val_check(bench, base).status == "pass"
    assert pipeline.tail_check(bench, base, "huge", only_one=True).status == "pass"


def test_an_epoch_chosen_with_bars_of_the_test_months_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "decision_ranges", shifted_ranges("val", 8))
    bench, base = mutated()
    check = pipeline.test_months_check(bench, base, "other")
    assert check.status == "LEAK"
    assert "validation scores" in check.found


def test_a_comparison_that_cannot_see_fails_by_its_teeth() -> None:
    blind = dataclasses.replace(world.markets(), shifted=lambda *_: world.markets().base)
    bench = dataclasses.replace(world.bench(), markets=blind)
    assert pipeline.teeth_check(bench, world.base()).status == "FAIL"


# ---- mutations of the device side


def test_an_observation_one_bar_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    see = env_ops.see
    monkeypatch.setattr(env_ops, "see", lambda env, market, scaler, bar: see(env, market, scaler, bar + 1))
    bench, base = mutated("see", "members")
    assert pipeline.observation_check(bench, base, 6, 0).status == "LEAK"
    check = pipeline.action_check(bench, base, 6, 0)
    assert (check.status, check.found) == ("LEAK", "positions change")


def test_a_normaliser_that_goes_on_in_evaluation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations are centred on what is being evaluated."""
    see = env_ops.see

    def centred(env, market, scaler, bar):
        running = dataclasses.replace(scaler, center=jnp.mean(market.features, axis=0))
        return see(env, market, running, bar)

    monkeypatch.setattr(env_ops, "see", centred)
    bench, base = mutated("see", "members")
    assert pipeline.observation_check(bench, base, 4, 0).status == "LEAK"
    assert pipeline.action_check(bench, base, 4, 0).status == "LEAK"


def test_an_evaluation_with_a_memory_is_found() -> None:
    bench, calls = world.bench(), []

    def remembering(market, rows, members, best):
        calls.append(1)
        return jnp.roll(bench.members(market, rows, members, best), len(calls), axis=1)

    check = pipeline.action_check(dataclasses.replace(bench, members=remembering), world.base(), 2, 0)
    assert (check.status, check.found) == ("LEAK", "evaluation has a memory")


# ---- controls


def test_shuffled_bars_earn_nothing_and_a_planted_signal_is_found() -> None:
    bench, base = world.bench(), world.base()
    assert controls.negative_check(bench, 8, 0).status == "pass"
    planted = controls.plant(bench, base, 0)
    assert planted is not None
    assert (planted.share, planted.factor) == (0.9, 1)
    assert controls.positive_check(bench, planted, 16).status == "pass"
    check = controls.planted_lag_check(bench, planted)
    assert check.status == "pass"
    gross = [int(part.replace(",", "")) for part in check.found.removeprefix("gross ").split(" ticks")[0].split(", ")]
    assert gross[0] > gross[1] > gross[2] > gross[3]


def test_a_fill_at_the_observed_bars_own_open_earns_on_shuffled_bars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tidewalk.market import prepare

    monkeypatch.setattr(prepare, "moves", world.with_moves(world.MOVES["filled at the observed bar's own open"]))
    bench, base = mutated()
    ledger = pipeline.ledger_check(bench, base, 0)
    assert (ledger.status, "moves are not from fill to fill" in ledger.details[0]) == ("LEAK", True)
    check = controls.negative_check(bench, 16, 0)
    assert check.status == "FAIL"
    assert "knows the moves before they happen" in check.details[0]


def test_a_pipeline_that_learns_nothing_fails_the_positive_control() -> None:
    bench, base = world.bench(), world.base()
    planted = controls.plant(bench, base, 0)
    assert planted is not None
    unlearned = dataclasses.replace(bench, epoch=lambda *args: frozen(bench, args))
    assert controls.positive_check(unlearned, planted, 3).status == "FAIL"


@pytest.mark.parametrize(("left", "factor", "reason"), [(0, 1, "-48 ticks net, p 1.000"), (6, 20, "ticks net, p 0.0")])
def test_where_even_following_shows_nothing_nothing_is_asked_of_the_policy(left: int, factor: int, reason: str) -> None:
    planted = controls.plant(world.bench(), world.base(), 0)
    assert planted is not None
    first = int(planted.study.windows.test[0, 0])
    still = factor * planted.market.move_ticks
    still[first + left :] = 0  # six large moves earn their costs, and prove nothing
    changed = dataclasses.replace(planted.market, move_ticks=still)
    leg = dataclasses.replace(planted.study.legs[0], market=changed)
    study_of_it = dataclasses.replace(planted.study, legs=(leg,))
    check = controls.positive_check(
        world.bench(), dataclasses.replace(planted, market=changed, study=study_of_it), epochs=1
    )
    assert check.status == "skipped"
    assert check.found.startswith("too few or small moves: following earns ")
    assert check.found.startswith("too few or small moves: following earns +") == (factor > 1)
    assert reason in check.found


def frozen(bench: Bench, args: tuple[object, ...]) -> tuple[object, object]:
    """An epoch after which the first weights are still in place."""
    state, metrics = bench.epoch(*args)
    best = dataclasses.replace(state.best, params=args[3].best.params)
    return dataclasses.replace(state, best=best), metrics


def test_decisions_out_of_step_with_their_moves_fail_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, base = world.bench(), world.base()
    planted = controls.plant(bench, base, 0)
    assert planted is not None
    book = account.book
    monkeypatch.setattr(
        account, "book", lambda market, first, lots, *rest: book(market, first, np.roll(lots, 5), *rest)
    )
    check = controls.planted_lag_check(bench, planted)
    assert check.status == "FAIL"
    assert "not in step" in check.details[0]


def test_the_p_value_is_uniform_on_noise_and_small_on_an_edge() -> None:
    rng = np.random.default_rng(0)
    moves = rng.integers(-5, 6, (200, 300))
    lots = rng.integers(-1, 2, (200, 300))
    values = np.array([controls.sign_flip_p(held, move, 1) for held, move in zip(lots, moves, strict=True)])
    assert abs(values.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 200)
    assert 0.02 < np.mean(values < 0.1) < 0.2
    assert controls.sign_flip_p(np.sign(moves[0]), moves[0], 1) == pytest.approx(1 / 2001)
    assert controls.sign_flip_p(np.zeros(300), moves[0], 1) == 1.0


def test_a_policy_that_gets_better_late_is_suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, base = world.bench(), world.base()
    first = pipeline.window_of_bench(base).test.first
    moves = np.sign(base.study.legs[0].market.move_ticks[first:]).astype(np.int64)
    stale = np.concatenate([moves[1:], [0]])  # what the next decision should hold
    monkeypatch.setattr(controls, "ensemble_lots", lambda *_: stale[: bench.program.test_bars])
    check = controls.lag_check(bench, base)
    assert check.status == "warning"
    assert "One bar late the policy earns" in check.details[0]
    monkeypatch.setattr(controls, "ensemble_lots", lambda *_: moves[: bench.program.test_bars])
    assert controls.lag_check(bench, base).status == "pass"


# ---- a prepared market, whose bars are gone


def test_a_prepared_market_is_checked_through_its_features_and_moves() -> None:
    clean = world.bench()
    bench = dataclasses.replace(clean, markets=benches.markets_of_prepared(clean.markets.base, world.CONFIG))
    base = benches.train(bench, bench.markets.base)
    assert base.weights == world.base().weights
    checks = [
        pipeline.tail_check(bench, base, "other", only_one=False),
        pipeline.teeth_check(bench, base),
        pipeline.val_check(bench, base),
        pipeline.test_months_check(bench, base, "huge"),
        pipeline.observation_check(bench, base, 4, 0),
        pipeline.action_check(bench, base, 4, 0),
        controls.negative_check(bench, 4, 0),
    ]
    assert [(check.name, check.status) for check in checks if check.status != "pass"] == []
