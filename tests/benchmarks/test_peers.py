"""The comparison with other trainers: one workload for all, and no ratio without a reason to trust it."""

import argparse
import dataclasses
import functools
import importlib.util
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import targets
from common import Report
from peers import contest, workload
from peers.contest import Entry, line_up, ratios, why_withheld
from peers.processes import Team
from peers.program import Setting, checked
from peers.tidewalk_dqn import Tidewalk, market_of, study_of, windows_of
from peers.workload import FLAT, POSITIONS, W1, W2, make_table

from tidewalk.agents import replay
from tidewalk.market.windows import Windows
from tidewalk.trading.costs import CostTicks
from tidewalk.train.collect import collect, transitions
from tidewalk.train.population import Lanes, window_of

SMALL = dataclasses.replace(
    W1, hidden=(8, 8), capacity=64, batch_size=8, updates_per_epoch=5, prefill_steps=8, episode_bars=7
)
# `run` is the file that asks all questions
_SPEC = importlib.util.spec_from_file_location("peers_run", pathlib.Path(contest.__file__).with_name("run.py"))
peers_run = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(peers_run)
ALONE = Setting("W1", 1, "tidewalk", "scan", 1, "cpu", "float32", None, 0)
LEARNED = {"updates": [2000], "captured": 0.95, "least": 0.5}


@dataclasses.dataclass(frozen=True)
class Path:
    """What tidewalk does with a list of actions: rows of a lane, one per decision."""

    bar: np.ndarray
    position: np.ndarray
    action: np.ndarray
    restarts: np.ndarray
    """Whether the episode was cut after the decision."""
    observation: np.ndarray
    reward: np.ndarray
    observation_after: np.ndarray


@pytest.fixture
def report() -> Report:
    return Report("question", {}, None, {})


def window() -> Windows:
    return window_of(jax.device_put(windows_of(make_table(SMALL.num_features))), jnp.int32(0))


@functools.cache
def transitions_of_100():
    """The compiled transitions of 100 records."""
    program, row = study_of(SMALL, ALONE).program, window()
    table = make_table(SMALL.num_features)
    market, cost = jax.device_put((market_of(table), CostTicks(np.full((), table.side_ticks, np.float32))))
    return jax.jit(lambda records: transitions(program, market, row, records[:, None], cost, jnp.float32(1.0), None))


@functools.cache
def walker():
    """Tidewalk's own collection of 100 decisions from a bar, its actions forced by the words that explore."""
    program, row = study_of(SMALL, ALONE).program, window()
    market = jax.device_put(market_of(make_table(SMALL.num_features)))
    params = program.agent.params(program.agent.init(jax.random.key(0)))

    def body(lanes, words):
        moved, rows = collect(program, market, row, params, lanes, words, jnp.float32(1.0), None)
        return moved, (rows[0], moved.age[0] == 0)

    def walk(first, words):
        start = Lanes(first, jnp.full(1, FLAT, jnp.int32), jnp.zeros(1, jnp.int32))
        return jax.lax.scan(body, start, words)[1]

    return jax.jit(walk)


@functools.cache
def path_of(bars_before_the_end: int | None = None) -> Path:
    """100 random actions from the first train bar, or from so many bars before the last."""
    first, stop = make_table(SMALL.num_features).train
    first = first if bars_before_the_end is None else stop - bars_before_the_end
    words = np.random.default_rng(1).integers(0, 2**32, (100, 3), dtype=np.uint32)
    words[:, 0] = 0  # always explore
    records, restarts = walker()(jnp.full(1, first, jnp.int32), jnp.asarray(words))
    batch, found = transitions_of_100()(records), replay.unpack(records)
    columns = (found.bar, found.position, found.action, restarts)
    seen = (batch.observation_tm1, batch.reward_t, batch.observation_t)
    assert (np.asarray(batch.discount_t) == 1.0).all()  # cut episodes bootstrap: none of them ends
    return Path(*(np.asarray(column) for column in (*columns, *seen)))


# The end of the train range cuts an episode too.
PATHS = pytest.mark.parametrize("before_the_end", [None, 3])


@pytest.mark.parametrize("work", [W1, W2])
def test_an_observation_has_the_size_that_the_workload_names(work):
    assert {"W1": 32, "W2": 128}[work.name] == work.observation_size
    assert workload.observation_table(work.num_features).shape[1] == work.observation_size


@PATHS
def test_the_tables_that_peers_look_up_are_what_tidewalk_computes(before_the_end):
    path = path_of(before_the_end)
    state = path.bar * POSITIONS + path.position
    observations = workload.observation_table(SMALL.num_features)
    np.testing.assert_array_equal(observations[state], path.observation)
    np.testing.assert_array_equal(observations[(path.bar + 1) * POSITIONS + path.action], path.observation_after)
    rewards = workload.reward_table(SMALL.num_features)
    np.testing.assert_allclose(rewards[state * POSITIONS + path.action], path.reward, rtol=0, atol=1e-6)


def test_rewards_are_those_of_tidewalk_over_rolls_and_turns():
    # every position and action at bars that roll
    table = make_table(SMALL.num_features)
    rolls = np.flatnonzero(table.is_roll)[:12]
    every = np.stack(np.meshgrid(rolls, range(3), range(3), indexing="ij")).reshape(3, -1)[:, :100]
    never = (jnp.zeros(100, bool),) * 3
    records = replay.pack(replay.Records(*(jnp.asarray(part, jnp.int32) for part in every), *never))
    expected = workload.net_ticks(table, *every) * table.reward_scale
    np.testing.assert_allclose(np.asarray(transitions_of_100()(records).reward_t), expected, rtol=0, atol=1e-6)


def test_following_the_sign_is_the_best_policy():
    """Value iteration on the chain itself: a state is (sign of the last move, position)."""
    moves = np.array([-1.0, 1.0])
    held = np.arange(POSITIONS) - FLAT
    table = make_table(W1.num_features)
    stay = np.where(np.eye(2, dtype=bool), workload.PERSISTENCE, 1 - workload.PERSISTENCE)
    mean_ticks = workload.MOVE_TICKS * stay @ moves
    cost = table.side_ticks * np.abs(held[:, None] - held[None, :])
    gain = mean_ticks[:, None, None] * held[None, None, :] - cost[None]  # [sign, position, action]
    value = np.zeros((2, POSITIONS))
    for _ in range(2_000):
        q = gain + 0.99 * (stay @ value)[:, None, :]
        value = q.max(axis=2)
    np.testing.assert_array_equal(q.argmax(axis=2), [[0, 0, 0], [2, 2, 2]])
    signs = np.sign(table.features[slice(*table.held_out), 0])
    np.testing.assert_array_equal(workload.best_policy(table)[:, 0], np.where(signs > 0, 2, 0))


def test_the_chain_keeps_its_sign_as_often_as_it_says():
    table = make_table(W1.num_features)
    signs = np.sign(table.move_ticks[:-1])
    share = (signs[1:] == signs[:-1]).mean()
    assert abs(share - workload.PERSISTENCE) < 4 * np.sqrt(0.09 / len(signs))


def test_no_observation_knows_the_move_that_its_decision_earns():
    table = make_table(W1.num_features)
    # the newest feature is the move of the decision before
    np.testing.assert_array_equal(table.features[W1.num_features :, 0] * 10, table.move_ticks[W1.num_features - 1 : -1])


def test_the_learning_check_tells_policies_apart():
    table = make_table(W1.num_features)
    best = np.eye(POSITIONS)[workload.best_policy(table)].reshape(-1, POSITIONS)
    flat = np.tile(np.eye(POSITIONS)[FLAT], (len(best), 1))
    assert workload.captured(W1, best) == pytest.approx(1.0)
    assert workload.captured(W1, flat) == 0.0
    assert workload.captured(W1, -best) < 0.0
    assert workload.captured(W1, np.full_like(best, np.nan)) == float("-inf")


def test_the_policy_is_followed_from_position_to_position():
    table = dataclasses.replace(make_table(W1.num_features), held_out=(W1.num_features, W1.num_features + 3))
    # from flat to long, from long to short, from short to flat: what other positions would do is not asked
    wanted = np.array([[9, 2, 9], [9, 9, 0], [1, 9, 9]])
    first = W1.num_features
    moves = table.move_ticks[first : first + 3]
    assert not table.is_roll[first : first + 3].any()
    assert workload.earned(table, wanted) == moves[0] - moves[1] - (1 + 2 + 1)


@pytest.fixture(scope="module")
def trained():
    with jax.numpy_dtype_promotion("standard"):
        found = Tidewalk(SMALL, dataclasses.replace(ALONE, members=2))
        found.advance(SMALL.updates_per_epoch)
        return found


@pytest.mark.slow
def test_tidewalk_counts_its_own_steps_and_updates(trained):
    with jax.numpy_dtype_promotion("standard"):
        before = trained.counts()
        assert before == (5, 5)
        trained.advance(2 * SMALL.updates_per_epoch)
        assert np.subtract(trained.counts(), before).tolist() == [10, 10]


@pytest.mark.slow
def test_tidewalk_shows_the_values_of_its_members(trained):
    observations = workload.held_out_observations(SMALL)[:6]
    values = trained.q_values(observations)
    assert values.shape == (2, 6, POSITIONS)
    assert not np.allclose(values[0], values[1])


@pytest.mark.parametrize(("members", "count"), [(1, 1), (16, 16), (17, 16), (4096, 16)])
def test_members_to_check_are_spread_over_the_population(members, count):
    found = checked(members)
    assert len(found) == count
    assert (found[0], found[-1]) == (0, members - 1)


def test_a_ratio_is_stated_when_both_have_learned():
    assert why_withheld(LEARNED, LEARNED, 2000) is None


@pytest.mark.parametrize(
    ("theirs", "ours", "reason"),
    [
        (LEARNED | {"captured": 0.89}, LEARNED, "it had not learned"),
        (LEARNED, LEARNED | {"captured": 0.5}, "tidewalk had not learned"),
        (LEARNED | {"captured": float("nan")}, LEARNED, "it had not learned"),
        (LEARNED | {"updates": [2000, 1950]}, LEARNED, "it had done"),
        (LEARNED, LEARNED | {"updates": [2050]}, "tidewalk had done"),
        (LEARNED, None, "tidewalk was not measured"),
    ],
)
def test_a_ratio_is_withheld_with_its_reason(theirs, ours, reason):
    assert reason in why_withheld(theirs, ours, 2000)


class FakeTeam:
    """Blocks of one length."""

    def __init__(self, block_ms: float) -> None:
        self._block_ms = block_ms

    def block_ms(self, _updates: int) -> float:
        return self._block_ms

    def peak_bytes(self) -> dict[str, int | None]:
        return {"peak_rss_bytes": 2**20, "peak_device_bytes": None}


def compared(report: Report, theirs: dict, ours: dict) -> dict[str, dict]:
    """Rows by program: tidewalk in blocks of 10 ms, SBX in blocks of 40."""
    options = argparse.Namespace(workload="W1", updates=100, check_updates=2000, rounds=2)
    entries = {name: line_up("cpu", 1, 1, (name,))[-1] for name in ("tidewalk", "sbx")}
    teams = {entries["tidewalk"]: (FakeTeam(10.0), ours), entries["sbx"]: (FakeTeam(40.0), theirs)}
    peers_run.compare(report, 1, teams, options)
    return {row["program"]: row for row in report.rows}


def test_rows_hold_a_ratio_where_both_have_learned(report):
    assert compared(report, LEARNED, LEARNED)["sbx"]["ratio"] == 4.0
    assert targets.over_peer("sbx", 1)({"peers": {"is_whole": True, "rows": report.rows}}) == 4.0
    assert "tidewalk is 4.00 times as fast" in peers_run.at_its_best(report.rows)[1]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("share", [0.5, float("nan")])
def test_no_row_and_no_target_holds_a_ratio_where_either_has_not_learned(report, is_ours, share):
    dull = LEARNED | {"captured": share}
    row = compared(report, *((LEARNED, dull) if is_ours else (dull, LEARNED)))["sbx"]
    assert "ratio" not in row
    assert "had not learned" in row["withheld"]
    assert targets.over_peer("sbx", 1)({"peers": {"is_whole": True, "rows": report.rows}}) is None
    assert "no ratio, for" in peers_run.at_its_best(report.rows)[1]


def test_a_ratio_is_of_agent_updates_and_paired_by_round():
    # 8 agents in 10 ms against 2 agents in 5 ms: 4 / 5 = twice the agents per time; in the second round four times
    assert ratios([10.0, 10.0], 8, [5.0, 10.0], 2) == {"ratio": 3.0, "ratio_low": 2.0, "ratio_high": 4.0}


def test_programs_without_a_population_train_in_turn_and_on_all_cores():
    entries = line_up("cpu", 8, 2, ("sb3", "rejax", "tidewalk"))
    assert [(e.program, e.mode, e.processes, e.members_each) for e in entries] == [
        ("sb3", "50/50", 1, 1),
        ("sb3", "50/50", 2, 1),
        ("rejax", "vmap", 1, 8),
        ("rejax", "vmap", 2, 4),
        ("tidewalk", "scan", 1, 8),
    ]


def test_one_agent_in_turn_needs_no_processes_of_its_own():
    alone, many = (line_up("cpu", members, 2, ("sb3",)) for members in (1, 8))
    assert many[0].label != alone[1].label
    assert many[0].team == alone[1].team


def test_one_member_is_compared_with_one_member():
    entries = line_up("gpu", 1, 16, tuple(contest.LABELS))
    assert {entry.members for entry in entries} == {1}
    assert {e.device for e in entries if e.program == "sb3"} == {"gpu", "cpu"}
    assert len({entry.label for entry in entries}) == len(entries)


def pins(name: str) -> set[tuple[str, str, str]]:
    """(package, version, marker) of a lock file."""
    text = (pathlib.Path(__file__).parents[2] / name).read_text()
    return {found.groups() for found in re.finditer(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\$", text, re.MULTILINE)}


def test_the_peers_run_beside_the_versions_that_tidewalk_is_tested_with():
    ours, theirs = pins("requirements.lock"), pins("requirements-bench.lock")
    shared = {name for name, _, _ in ours} & {name for name, _, _ in theirs}
    others = {name for name, _, _ in {pin for pin in theirs if pin[0] in shared} - ours}
    # SBX stops before jax 0.12, which Python 3.12 would take
    assert others == {"jax", "jaxlib"}
    apart = {pin for pin in theirs - ours if pin[0] in others}
    assert {marker for _, _, marker in apart} == {"python_full_version >= '3.12'"}
    assert {version.rpartition(".")[0] for _, version, _ in apart} == {"0.11"}
    assert not {name for name, _, _ in theirs} & {"torch", "triton"}, "the build of torch is the user's choice"


class FakeProcess:
    """A worker that counts what it is told to."""

    def __init__(self, updates: int, steps: int, *, fails: bool = False) -> None:
        self._answer, self._fails = {"updates": updates, "steps": steps, "seconds": 0.25, "ended_at": 0.0}, fails

    def ask(self, what, **_):
        return {} if what == "warm" else self._answer

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("updates", "steps"), [(99, 100), (100, 99), (0, 0), (100, 200)])
def test_a_block_of_other_work_than_asked_for_is_no_measurement(updates, steps):
    team = Team([FakeProcess(updates, steps)])
    with pytest.raises(RuntimeError, match="100 updates after as many vector steps were asked for"):
        team.block_ms(100)


def test_a_block_of_one_process_is_timed_by_itself():
    assert Team([FakeProcess(100, 100)]).block_ms(100) == 250.0


def test_settings_travel_as_json():
    setting = Entry("sb3", "1/1", "cpu", 2, 1, 1).setting(1, "W1", 64, "float32")
    assert Setting(**json.loads(json.dumps(dataclasses.asdict(setting)))) == setting


@pytest.mark.bench
@PATHS
def test_the_gymnasium_skin_is_the_same_market(before_the_end):
    pytest.importorskip("gymnasium", reason="needs requirements-bench.lock")
    from peers.gym_env import MarketEnv

    path, env = path_of(before_the_end), MarketEnv(SMALL)
    seen, _ = env.reset(options={"bar": int(path.bar[0])})
    for number in range(len(path.bar)):
        np.testing.assert_array_equal(seen, path.observation[number])
        seen, reward, is_ended, is_cut, _ = env.step(path.action[number])
        np.testing.assert_array_equal(seen, path.observation_after[number])
        assert reward == pytest.approx(path.reward[number], abs=1e-6)
        assert (is_ended, is_cut) == (False, bool(path.restarts[number]))
        if is_cut and number + 1 < len(path.bar):
            seen, _ = env.reset(options={"bar": int(path.bar[number + 1])})


@pytest.mark.bench
@PATHS
def test_the_gymnax_skin_is_the_same_market(before_the_end):
    pytest.importorskip("gymnax", reason="needs requirements-bench.lock")
    from peers.jax_env import MarketEnv, State, final_observation

    path, env = path_of(before_the_end), MarketEnv(SMALL)
    arrays, step = env.default_params, jax.jit(env.step)
    age = np.zeros(len(path.bar), np.int32)
    for number in range(1, len(age)):
        age[number] = 0 if path.restarts[number - 1] else age[number - 1] + 1
    for number in range(len(path.bar)):
        state = State(*(jnp.int32(column[number]) for column in (path.bar, path.position, age)))
        action = jnp.int32(path.action[number])
        seen, after, reward, is_done, _ = step(jax.random.key(number), state, action, arrays)
        assert bool(is_done) == bool(path.restarts[number])
        assert float(reward) == pytest.approx(path.reward[number], abs=1e-6)
        last = final_observation(arrays, state, action)
        np.testing.assert_array_equal(last, path.observation_after[number])
        if is_done:
            first, stop = make_table(SMALL.num_features).train
            assert (int(after.position), int(after.age)) == (FLAT, 0)
            assert first <= int(after.bar) < stop
        else:
            np.testing.assert_array_equal(seen, last)
            assert [int(part) for part in after] == [path.bar[number] + 1, path.action[number], age[number] + 1]


@pytest.mark.bench
@PATHS
def test_the_torch_skin_is_the_same_market(before_the_end):
    torch = pytest.importorskip("torch", reason="needs a build of torch")
    from peers import torch_env

    path, tables = path_of(before_the_end), torch_env.arrays(SMALL, "cpu")
    state = torch.tensor(path.bar[:1] * POSITIONS + path.position[:1])
    age = torch.zeros(1, dtype=torch.int32)
    for number in range(len(path.bar)):
        np.testing.assert_array_equal(torch_env.observations_of(tables, state)[0], path.observation[number])
        following = path.bar[(number + 1) % len(path.bar)]
        action = torch.tensor(path.action[number : number + 1])
        decision, state, age, is_cut = torch_env.step(tables, state, age, action, torch.tensor([following]))
        np.testing.assert_array_equal(torch_env.observation_after(tables, decision)[0], path.observation_after[number])
        assert float(torch_env.reward_of(tables, decision)[0]) == pytest.approx(path.reward[number], abs=1e-6)
        assert bool(is_cut[0]) == bool(path.restarts[number])


PROGRAMS = [
    ("sb3", "1/1", 1), ("sb3", "50/50", 1), ("sbx", "50/50", 1), ("rejax", "vmap", 2), ("recipe", "vmap", 2),
    ("torch", "eager", 2), ("tidewalk", "scan", 2),
]  # fmt: skip


@pytest.mark.bench
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "mode", "members"), PROGRAMS)
@pytest.mark.parametrize("lanes", [1, 4])
def test_every_program_does_the_updates_that_it_is_asked_for(name, mode, members, lanes):
    import importlib

    from peers.worker import PROGRAMS as KINDS

    module, kind = KINDS[name]
    pytest.importorskip({"sb3": "stable_baselines3", "recipe": "flashbax"}.get(name, name), reason="not installed")
    work = dataclasses.replace(W1, lanes=lanes)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        program = getattr(importlib.import_module(module), kind)(
            work, Setting("W1", lanes, name, mode, members, "cpu", "float32", 1, 0)
        )
        assert program.counts() == (0, 0)
        program.advance(50)
        program.advance(100)
        assert program.counts() == (150, 150)
        values = program.q_values(workload.held_out_observations(work)[:9])
    assert values.shape == (members, 9, POSITIONS)
    assert np.isfinite(values).all()


@pytest.mark.bench
@pytest.mark.parametrize("lanes", [1, 16])
def test_the_gradients_that_the_torch_rival_writes_out_are_those_of_autograd(lanes):
    torch = pytest.importorskip("torch", reason="needs a build of torch")
    from peers import torch_env
    from peers.torch_rival import ONLINE, TARGET, TorchRival

    work = dataclasses.replace(W1, lanes=lanes)
    rival = TorchRival(work, Setting("W1", lanes, "torch", "eager", 3, "cpu", "float32", 1, 0))
    for stack in rival.stacks:  # online and target apart, and errors on both sides of one
        stack[TARGET] += 0.3 * torch.randn_like(stack[TARGET])
    words, filled = rival.draw(1)[0], int(rival.clock) * lanes
    drawn = (words[:, 3 * lanes :][:, : W1.batch_size] * filled).long()
    decision, state = rival.replay.gather(1, drawn), rival.state.clone()
    with torch.no_grad():
        written = rival.step(words)
    leaves = [stack[ONLINE].clone().requires_grad_() for stack in rival.stacks]

    def q_values(weights, x):
        for number in (0, 2, 4):
            x = x @ weights[number] + weights[number + 1]
            x = x.relu() if number < 4 else x
        return x

    after = torch_env.observation_after(rival.tables, decision)
    target = torch_env.reward_of(rival.tables, decision) + W1.gamma * q_values(
        [stack[TARGET] for stack in rival.stacks], after
    ).amax(dim=2)
    q = q_values(leaves, torch_env.observations_of(rival.tables, decision // POSITIONS))
    taken = q.gather(2, (decision % POSITIONS)[..., None].long())[..., 0]
    # every member has a mean loss of its own
    torch.nn.functional.smooth_l1_loss(taken, target, reduction="none").mean(dim=1).sum().backward()
    for mine, leaf in zip(written, leaves, strict=True):
        torch.testing.assert_close(mine, leaf.grad, rtol=1e-4, atol=1e-6)

    # the step that came with the update is greedy where it does not explore
    stored = rival.replay[:, filled : filled + lanes]
    greedy = q_values(leaves, torch_env.observations_of(rival.tables, state)).argmax(dim=2)
    explores = words[:, :lanes] < W1.epsilon
    random = (words[:, lanes : 2 * lanes] * POSITIONS).int()
    assert torch.equal(stored // POSITIONS, state)
    assert torch.equal(stored % POSITIONS, torch.where(explores, random, greedy))
