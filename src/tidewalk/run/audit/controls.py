"""Controls of the whole: what cannot be known must earn nothing, and what can be known must be found.

Negative: the user's bars in a random order, mirrored at random, through features, training and selection. Positive: the
signs of the user's own moves follow one of his feature columns in a known share of all bars.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from tidewalk.market.device import MarketData
from tidewalk.run.audit.bench import Bench, Run, ensemble_lots, in_lots, study_of, train, upload
from tidewalk.run.audit.checks import Check
from tidewalk.run.audit.pipeline import window_of_bench
from tidewalk.run.study import Study
from tidewalk.trading import account

STAGE = "controls"
SIZE = 0.01
"""Share of honest pipelines in which one shuffled market looks significant; two in a row have to, to fail."""
LEAST_SHARE = 1 / 3
"""Of what following the planted signal earns after costs, the trained policy has to earn this much."""
LAG_T_VALUE = 3.0
LAGS = (0, 1, 2, 5)
_DRAWS, _CHUNK = 2000, 100
_FLIP_RATE, _LEAST_SIDE = 0.1, 0.2
_STRENGTHS = ((0.7, 1), (0.8, 1), (0.9, 1), (0.9, 3), (0.9, 10), (0.9, 100))
"""Share of moves that follow the signal, and factor on their size: the first at which costs eat less than a third."""
_FEW_BARS, _CLEAR_SHARE = 20_000, 0.9
"""With fewer train bars the signal is that clear at least: a network would learn the noise beside a weaker one."""
_MOST_COST_SHARE = 1 / 3
_ERRORS = 5.0


@dataclasses.dataclass(frozen=True)
class Earned:
    """What a path of positions earned over the test months, in ticks."""

    gross: float
    net: float
    sides: int


# ---- negative


def negative_check(bench: Bench, epochs: int, seed: int) -> Check:
    """Whether a policy trained on shuffled bars earns on shuffled test months what only knowledge can.

    The p-value: share of 2000 redraws of the signs of all test moves under which the same positions earn as much.
    """
    outcomes: list[tuple[float, Earned]] = []
    for number in range(2):
        market = bench.markets.shuffled(seed + number)
        run = train(bench, market, epochs=epochs)
        lots = ensemble_lots(bench, run)
        first = window_of_bench(run).test.first
        moves = run.study.legs[0].market.move_ticks[first : first + len(lots)]
        outcomes.append((sign_flip_p(lots, moves, seed), earned(run.study, lots)))
        if outcomes[-1][0] >= SIZE:
            break
    done = f"trained on shuffled, mirrored bars; p below {SIZE:g} twice in a row fails (1 in {round(SIZE**-2):,})"
    p_value, result = outcomes[-1]
    found = f"gross {result.gross:+,.0f}, net {result.net:+,.0f} ticks, p {p_value:.3f}"
    if p_value >= SIZE:
        return Check(STAGE, "negative", done, "pass", found)
    texts = ", then ".join(f"gross {one.gross:+,.0f} ticks, p {p:.4f}" for p, one in outcomes)
    text = (
        f"Bars in a random order with random signs hold nothing to learn, and the trained policy earned on them out of "
        f"sample: {texts}. Some part of the pipeline knows the moves before they happen."
    )
    return Check(STAGE, "negative", done, "FAIL", found, (text,))


def sign_flip_p(lots: np.ndarray, move_ticks: np.ndarray, seed: int) -> float:
    """Share of random signs of the moves under which these positions earn no less, (1 + k) / (1 + draws)."""
    gains = lots.astype(np.float64) * move_ticks
    rng, size = np.random.default_rng(seed), np.abs(gains[gains != 0])
    if not len(size):
        return 1.0
    draws = np.concatenate(
        [(2.0 * rng.integers(0, 2, (_CHUNK, len(size)), np.int8) - 1.0) @ size for _ in range(_DRAWS // _CHUNK)]
    )
    return float((1 + np.count_nonzero(draws >= gains.sum())) / (1 + len(draws)))


def earned(study: Study, lots: np.ndarray) -> Earned:
    """Gross and net ticks of a path of contracts over the test months of the first window."""
    leg, first = study.legs[0], int(study.windows.test[0, 0])
    found = account.book(leg.market, first, lots, study.config.env.roll_as)
    gross, traded = int(found.gross_ticks.sum()), int(found.sides.sum())
    costs = leg.costs.side_ticks * traded + leg.costs.roll_ticks * int(found.rolled.sum()) + found.crossed_ticks.sum()
    return Earned(gross, float(gross - costs), traded)


# ---- positive


@dataclasses.dataclass(frozen=True)
class Planted:
    """A market whose moves follow a feature column."""

    market: MarketData
    study: Study
    column: str
    share: float
    """Probability that a move has the sign of the signal."""
    factor: int
    signal: np.ndarray
    """+1 or -1 for every bar, as its decision sees it."""
    followed: np.ndarray
    """Contracts over the test months of who follows the signal, under all rules."""


def plant(bench: Bench, base: Run, seed: int) -> Planted | None:
    """Put a signal into the user's moves; None where no column varies enough to carry one.

    The sizes of the moves stay in their places, their signs become those of a feature column about its median, with a
    probability. Where that pays less than three times its costs, the share and then the sizes are raised.
    """
    found = _carrier(bench, base)
    if found is None:
        return None
    column, signal = found
    market, rng = bench.markets.base, np.random.default_rng(seed)
    draw = rng.random(market.num_bars)
    planted: Planted | None = None
    window = window_of_bench(base)
    for share, factor in _STRENGTHS:
        if share < _CLEAR_SHARE and window.train.bars < _FEW_BARS:
            continue
        size = np.abs(market.move_ticks.astype(np.int64)) * factor
        if int(size.sum()) >= 2**31:
            break
        moves = (signal * np.where(draw < share, size, -size)).astype(np.int32)
        changed = dataclasses.replace(market, move_ticks=moves)
        study = study_of(bench, changed)
        followed = followed_lots(bench, study, signal, 0)
        planted = Planted(changed, study, market.info.feature_names[column], share, factor, signal, followed)
        result = earned(study, followed)
        if result.gross - result.net < _MOST_COST_SHARE * result.gross:
            break
    return planted


def _carrier(bench: Bench, base: Run) -> tuple[int, np.ndarray] | None:
    """A column to carry a signal: it changes sides about every tenth bar, and both sides are common everywhere."""
    market, window = bench.markets.base, window_of_bench(base)
    train_rows, test_rows = slice(window.train.first, window.train.stop), slice(window.test.first, window.test.stop)
    best: tuple[float, int, np.ndarray] | None = None
    for column in range(market.features.shape[1]):
        values = market.features[:, column]
        side = np.where(values > np.median(values[train_rows]), 1, -1)
        shares = [float(np.mean(side[rows] > 0)) for rows in (train_rows, test_rows)]
        if min(*shares, *(1 - share for share in shares)) < _LEAST_SIDE:
            continue
        flips = float(np.mean(np.diff(side[train_rows]) != 0))
        distance = abs(np.log(max(flips, 1e-9) / _FLIP_RATE))
        if best is None or distance < best[0]:
            best = distance, column, side
    if best is None:
        return None
    delay = bench.program.env.decision_delay
    return best[1], np.concatenate([np.full(delay, -1), best[2]])[: market.num_bars]


def followed_lots(bench: Bench, study: Study, signal: np.ndarray, lag: int) -> np.ndarray:
    """Contracts over the test months of who wants the largest position on the side of a signal some bars old."""
    env, (first, stop) = bench.program.env, (int(bar) for bar in study.windows.test[0])
    wanted = (env.flat + signal[first - lag : stop - lag] * env.max_levels).astype(np.int8)
    return _clamped(bench, study, wanted)


def _clamped(bench: Bench, study: Study, wanted: np.ndarray) -> np.ndarray:
    """Contracts of wanted position indices over the test months, under all rules and limits."""
    resident = upload(study)
    limits = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), study.limits)
    positions = bench.follow(resident.market, limits, jnp.asarray(study.windows.test[0]), jnp.asarray(wanted))
    return in_lots(bench, study, np.asarray(positions))


def positive_check(bench: Bench, planted: Planted | None, epochs: int) -> Check:
    """Whether a trained policy finds the planted signal.

    It has to earn a third of what following the signal earns after costs, and more before costs than all but 1 % of
    redraws of the signs of the moves would give its positions. Account limits may halt it early: under these any gain
    after costs will do. Where following itself earns nothing after costs, or not clearly more than such redraws, the
    moves are too few or too small for any policy to show what it knows, and nothing is asked.
    """
    if planted is None:
        return Check(
            STAGE, "positive", "a signal planted in the moves", "skipped", "no column varies enough to carry it"
        )
    first = int(planted.study.windows.test[0, 0])
    moves = planted.market.move_ticks[first : first + len(planted.followed)]
    follower, best_p = earned(planted.study, planted.followed), sign_flip_p(planted.followed, moves, 0)
    times = "" if planted.factor == 1 else f", moves x {planted.factor}"
    done = f"signs of moves follow {planted.column} in {planted.share:.0%}{times}"
    if follower.net <= 0 or best_p >= SIZE / 10:  # a policy that finds most of it has to pass at SIZE
        found = f"too few or small moves: following earns {follower.net:+,.0f} ticks net, p {best_p:.3f}"
        return Check(STAGE, "positive", done, "skipped", found)
    run = train(bench, planted.market, epochs=epochs)
    lots = ensemble_lots(bench, run)
    p_value, own = sign_flip_p(lots, moves, 0), earned(run.study, lots)
    share = own.net / follower.net
    found = f"policy {own.net:+,.0f} of {follower.net:+,.0f} ticks net ({share:.0%}), p {p_value:.3f}"
    least = 0.0 if bench.config.limits.is_any else LEAST_SHARE
    if share > least and p_value < SIZE:
        return Check(STAGE, "positive", done, "pass", found)
    text = (
        f"A signal in {planted.column} that earns {follower.net:+,.0f} ticks after costs when followed was not found: "
        f"the trained policy earned {own.net:+,.0f} ({least:.0%} is asked for). Either the pipeline cannot learn "
        "with these rules and costs, or decisions reach other bars than those they were taken for."
    )
    return Check(STAGE, "positive", done, "FAIL", found, (text,))


def planted_lag_check(bench: Bench, planted: Planted | None) -> Check:
    """Whether following the planted signal, at once and late, earns what the closed form says.

    A follower with positions q earns (2p - 1) sum(q s |m|) on average, with s the signal, m the moves and p the share
    of them that follow it; five standard errors are allowed.
    """
    done = f"planted signal followed {', '.join(map(str, LAGS))} bars late"
    if planted is None:
        return Check(STAGE, "lag, planted", done, "skipped", "no column varies enough to carry a signal")
    first, edge = int(planted.study.windows.test[0, 0]), 2 * planted.share - 1
    parts, wrong = [], []
    for lag in LAGS:
        lots = followed_lots(bench, planted.study, planted.signal, lag)
        rows = slice(first, first + len(lots))
        sizes = np.abs(planted.market.move_ticks[rows].astype(np.float64))
        expected = edge * float(np.sum(lots * planted.signal[rows] * sizes))
        error = np.sqrt((1 - edge**2) * float(np.sum((lots * sizes) ** 2)))
        gross = earned(planted.study, lots).gross
        parts.append(f"{gross:+,.0f}")
        if abs(gross - expected) > _ERRORS * error:
            wrong.append(f"{lag} bars late {gross:+,.0f} ticks, where {expected:+,.0f} +- {error:,.0f} are due")
    found = f"gross {', '.join(parts)} ticks"
    if not wrong:
        return Check(STAGE, "lag, planted", done, "pass", f"{found}, as the closed form says")
    text = f"The planted signal earns what it cannot: {'; '.join(wrong)}. Decisions and moves are not in step."
    return Check(STAGE, "lag, planted", done, "FAIL", found, (text,))


# ---- lag on the user's own bars


def lag_check(bench: Bench, run: Run) -> Check:
    """What the policy trained on the user's bars earns when each position is taken late (a description).

    Rule: one bar late earning more by three standard errors of the difference per session is suspicious.
    """
    lots = ensemble_lots(bench, run)
    env, first = bench.program.env, int(run.study.windows.test[0, 0])
    market = run.study.legs[0].market
    done = f"positions of the trained policy {', '.join(map(str, LAGS))} bars late"
    if not lots.any():
        return Check(STAGE, "lag, your bars", done, "pass", "the policy stays flat")
    gross, by_session = [], []
    for lag in LAGS:
        late = np.concatenate([np.zeros(min(lag, len(lots)), np.int64), lots])[: len(lots)]
        held = _clamped(bench, run.study, (env.flat + late // env.lots_per_level).astype(np.int8))
        account_of_lag = account.book(market, first, held, env.roll_as)
        gross.append(int(account_of_lag.gross_ticks.sum()))
        by_session.append(account.by_session(market, account_of_lag).gross_ticks)
    found = f"gross {', '.join(f'{value:+,}' for value in gross)} ticks"
    gain = (by_session[1] - by_session[0]).astype(np.float64)
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 2 else 0.0
    if error > 0 and gain.mean() / error > LAG_T_VALUE:
        text = (
            f"One bar late the policy earns {gain.sum():+,.0f} ticks more ({gain.mean() / error:.1f} standard errors "
            "over the sessions): a decision that gets better with age was not taken for the bar it is booked to."
        )
        return Check(STAGE, "lag, your bars", done, "warning", found, (text,))
    return Check(STAGE, "lag, your bars", done, "pass", found)
