"""Checks of windows, scaler, training, selection and actions: bars of later months change, earlier results may not."""

import dataclasses
from typing import Any

import numpy as np

from tidewalk.market.windows import Window
from tidewalk.run.audit.bench import Bench, Run, in_lots, random_policy, scaler_digest, study_of, train, upload
from tidewalk.run.audit.checks import Check
from tidewalk.run.audit.series import MARKED_LATE
from tidewalk.trading import ledger
from tidewalk.trading.account import book
from tidewalk.train.population import Best

TRAINING, SELECTION, ACTIONS, OBSERVATIONS = "training", "selection", "actions", "observations"
_SEEN_BARS = 512
_DRAWS = 6


def window_of_bench(run: Run) -> Window:
    """The window that is trained on, in rows of its own market."""
    return run.study.legs[0].plan.windows[0]


def repeat_check(bench: Bench, base: Run) -> Check:
    """Whether training twice gives the same bits: without that no comparison below would mean anything."""
    again = train(bench, bench.markets.base)
    done = f"trained twice on {window_of_bench(base).train.bars:,} bars"
    if (again.weights, again.chosen, again.scaler) == (base.weights, base.chosen, base.scaler):
        return Check(TRAINING, "repeatable", done, "pass", f"same weights ({base.weights[-1][:8]})")
    text = "Two trainings on the same bars differ, so the checks of training prove nothing on this device."
    return Check(TRAINING, "repeatable", done, "FAIL", "other weights", (text,))


def scaler_check(bench: Bench, base: Run) -> Check:
    """Whether the scaler is fitted on train bars alone: all later ones change, and its first one after them alone."""
    window = window_of_bench(base)
    first, stop = window.train.stop, bench.markets.base.num_bars
    done = "bars after the train range of another market, far away, its first one alone"
    for last, kind in ((stop, "other"), (stop, "huge"), (first + 1, "huge")):
        study = study_of(bench, bench.markets.shifted(first, last, kind))
        if scaler_digest(study) != base.scaler:
            text = (
                f"The scaler (centre, scale, unit of reward) changes with bars from {first:,} on {_WORDS[kind]}: it is "
                f"fitted on more than the train range, which ends before bar {first:,}."
            )
            return Check("scaler", "later bars", done, "LEAK", "the scaler sees them", (text,))
    return Check("scaler", "later bars", done, "pass", f"the same ({base.scaler[:8]})")


def tail_check(bench: Bench, base: Run, kind: str, *, only_one: bool) -> Check:
    """Whether scaler, replay and weights know the bars after the train months.

    Args:
        bench: the programs.
        base: the training on the bars as they are.
        kind: "huge" or "other", what the bars are replaced by.
        only_one: the first bar after the (purged) train range alone, or all from it on.
    """
    window = window_of_bench(base)
    first = window.train.stop
    stop = first + 1 if only_one else bench.markets.base.num_bars
    name = "tail, one bar" if only_one else f"tail, {_SHORT[kind]}"
    done = f"{'the first bar' if only_one else 'all bars'} after the train range {_WORDS[kind]}"
    other = train(bench, bench.markets.shifted(first, stop, kind))
    gap = window.val.first - first
    if other.scaler != base.scaler:
        text = (
            f"The scaler (centre, scale, unit of reward) of a window changes with {done}: it is fitted on more than "
            f"the train range, which ends before bar {first:,}."
        )
        return Check("scaler", name, done, "LEAK", "the scaler sees them", (text,))
    if other.weights != base.weights:
        epoch = _first_other(base.weights, other.weights)
        text = (
            f"Replay or weights change in epoch {epoch} with {done} (bar {first:,}, validation {gap} bars later): "
            "targets read beyond the train range. Is the purge as long as the n-step targets and the fill?"
        )
        return Check(TRAINING, name, done, "LEAK", "training sees them", (text,))
    return Check(TRAINING, name, done, "pass", f"scaler, replay, weights the same; {gap} bars of purge")


_WORDS = {"huge": "far away", "other": "of another market"}
_SHORT = {"huge": "far away", "other": "other market"}


def teeth_check(bench: Bench, base: Run) -> Check:
    """Whether the comparison can see anything: the last bar of the train range does change scaler and weights."""
    stop = window_of_bench(base).train.stop
    other = train(bench, bench.markets.shifted(stop - 1, stop, "huge"))
    done = "the last bar of the train range far away"
    if other.scaler != base.scaler and other.weights != base.weights:
        return Check(TRAINING, "last bar", done, "pass", "scaler and weights change, as they must")
    text = "The last bar of the train range changes nothing: the checks of the bars after it are blind."
    return Check(TRAINING, "last bar", done, "FAIL", "nothing changes", (text,))


def val_check(bench: Bench, base: Run) -> Check:
    """Whether validation months teach: they may change scores and the chosen epoch, and no weight at any epoch."""
    window = window_of_bench(base)
    other = train(bench, bench.markets.shifted(window.val.first, window.test.first, "other"))
    done = "validation months of another market"
    if other.scaler != base.scaler or other.weights != base.weights:
        where = "the scaler" if other.scaler != base.scaler else f"epoch {_first_other(base.weights, other.weights)}"
        text = f"Other bars in the validation months change {where}: validation may choose an epoch, and never teach."
        return Check(SELECTION, "validation", done, "LEAK", "they teach", (text,))
    is_seen = not np.array_equal(base.scores, other.scores)
    found = "weights the same at every epoch, " + ("scores change" if is_seen else "scores too: the policy is flat")
    return Check(SELECTION, "validation", done, "pass", found)


def test_months_check(bench: Bench, base: Run, kind: str) -> Check:
    """Whether the test months have a say in scaler, weights, validation scores or the chosen epoch."""
    window = window_of_bench(base)
    other = train(bench, bench.markets.shifted(window.test.first, bench.markets.base.num_bars, kind))
    done, name = f"test months {_WORDS[kind]}", f"test, {_SHORT[kind]}"
    parts = {
        "the scaler": other.scaler == base.scaler,
        "weights": other.weights == base.weights,
        "validation scores": np.array_equal(other.scores, base.scores),
        "the chosen epoch": other.chosen == base.chosen,
    }
    wrong = [part for part, is_same in parts.items() if not is_same]
    if wrong:
        text = (
            f"Other bars in the test months (from bar {window.test.first:,} on) change {' and '.join(wrong)}: what is "
            "traded out of sample was chosen with the sample."
        )
        return Check(SELECTION, name, done, "LEAK", f"they change {', '.join(wrong)}", (text,))
    epochs = ", ".join(str(epoch) for epoch in np.asarray(base.best.epoch))
    return Check(SELECTION, name, done, "pass", f"chosen epochs {epochs} and their weights the same")


def _first_other(one: tuple[str, ...], two: tuple[str, ...]) -> int:
    return 1 + next(number for number, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1])


# ---- what is seen and done up to a moment


@dataclasses.dataclass(frozen=True)
class _Played:
    """Random policies over the test months: contracts held, and what each decision does, `[M, n]`."""

    lots: np.ndarray
    gross_ticks: np.ndarray
    sides: np.ndarray


def action_check(bench: Bench, base: Run, count: int, seed: int) -> Check:
    """Whether decisions of the test months, or their money, hang on bars after them.

    Scaler and policies stay as they are. Policies with random weights act, since they change their position often.
    Under account limits a position hangs on the price of its own fill, at which the limits are checked, so one decision
    less is compared.
    """
    policy = _restless(bench, base, seed)
    played, again = (_played(bench, base.resident, policy, base) for _ in range(2))
    name, window = "future", window_of_bench(base)
    if not np.array_equal(played.lots, again.lots):
        text = "The same policies over the same test months act otherwise the second time: evaluation changes a state."
        return Check(ACTIONS, name, "evaluated twice", "LEAK", "evaluation has a memory", (text,))
    moments = _moments(bench, window, count, seed)
    done = f"evaluated twice; {len(moments)} cuts in the test months"
    is_counted = bench.config.limits.is_any
    for number, row in enumerate(moments):
        kind = ("other", "huge")[number % 2]
        resident = _with_market(bench, base, bench.markets.shifted(row, bench.markets.base.num_bars, kind))
        other = _played(bench, resident, policy, base)
        decided, marked = row - window.test.first - is_counted, row - window.test.first - MARKED_LATE
        changed = _changed(played, other, max(decided, 0), max(marked, 0))
        if changed is not None:
            bar = window.test.first + changed[1]
            text = (
                f"{changed[0]} of the decision of bar {bar:,} change with bars from {row:,} on {_WORDS[kind]}, while "
                "policy and scaler stay: the environment or the evaluation sees the future."
            )
            return Check(ACTIONS, name, done, "LEAK", f"{changed[0]} change", (text,))
    turns = int(np.count_nonzero(np.diff(played.lots, axis=1)))
    found = f"{turns:,} changes of position and their P&L the same"
    return Check(ACTIONS, name, done, "pass" if turns else "warning", found)


def ledger_check(bench: Bench, base: Run, seed: int) -> Check:
    """Whether the fills of a ledger, at their own prices, earn what decisions are paid in training and evaluation.

    Each fill has to be at the open of the bar after its decision, and all of them, from flat to flat, have to bring in
    the sum of position times move, to the tick.
    """
    played = _played(bench, base.resident, _restless(bench, base, seed), base)
    leg, first = base.study.legs[0], window_of_bench(base).test.first
    done, count = "fills of restless policies at their own prices", 0
    for lots in played.lots:
        account = book(leg.market, first, lots, bench.config.env.roll_as)
        made = ledger.fills(leg.market, account, leg.costs)
        late = np.flatnonzero(made.ts_ns != leg.market.ts_ns[first + 1 + made.row])
        if late.size:
            text = (
                f"The decision of bar {first + int(made.row[late[0]]):,} fills elsewhere than at the next bar's open."
            )
            return Check("fills", "ledger", done, "LEAK", f"{late.size:,} fills at other bars", (text,))
        paid, earned = -int(np.sum(made.lots * made.price_ticks)), int(account.gross_ticks.sum())
        if paid != earned:
            text = (
                f"The fills of a policy over the test months bring in {paid:+,} ticks at their prices, its decisions "
                f"were paid {earned:+,}: moves are not from fill to fill."
            )
            return Check("fills", "ledger", done, "LEAK", f"{paid:+,} at prices, {earned:+,} by moves", (text,))
        count += len(made)
    return Check("fills", "ledger", done, "pass", f"{count:,} fills, gross equal to the tick")


def _restless(bench: Bench, base: Run, seed: int) -> Best:
    """Of some random policies those that change their position most often: a policy that never moves shows nothing."""
    drawn = [random_policy(base.best, _DRAWS * seed + number) for number in range(_DRAWS)]
    turns = [np.count_nonzero(np.diff(_played(bench, base.resident, policy, base).lots, axis=1)) for policy in drawn]
    return drawn[int(np.argmax(turns))]


def _played(bench: Bench, resident: Any, policy: Best, base: Run) -> _Played:
    positions = np.asarray(bench.members(resident.market, resident.windows, resident.members, policy))
    lots = np.stack([in_lots(bench, base.study, row) for row in positions])
    # the money of what the device holds: moves of other bars than those of the base are other moves
    first = window_of_bench(base).test.first
    moves = np.asarray(resident.market.move_ticks, np.int64)[first : first + lots.shape[1]]
    books = [book(base.study.legs[0].market, first, row, bench.config.env.roll_as) for row in lots]
    return _Played(lots, lots * moves, np.stack([account.sides for account in books]))


def _with_market(bench: Bench, base: Run, market: Any) -> Any:
    """Another market under the windows, scaler and members of the base."""
    resident = upload(study_of(bench, market))
    return dataclasses.replace(resident, windows=base.resident.windows, members=base.resident.members)


def _changed(one: _Played, other: _Played, decided: int, marked: int) -> tuple[str, int] | None:
    pairs = {
        "positions": (one.lots[:, :decided], other.lots[:, :decided]),
        "costs": (one.sides[:, :decided], other.sides[:, :decided]),
        "gains": (one.gross_ticks[:, :marked], other.gross_ticks[:, :marked]),
    }
    for what, (left, right) in pairs.items():
        if not np.array_equal(left, right):
            return what, int(np.argmax((left != right).any(axis=0)))
    return None


def observation_check(bench: Bench, base: Run, count: int, seed: int) -> Check:
    """Whether what a policy sees at a bar hangs on bars after it, all else being as it is."""
    window, env = window_of_bench(base), bench.program.env
    moments = _moments(bench, window, count, seed + 1)
    done = f"{len(moments)} cuts, {_SEEN_BARS} observations before each"
    earliest = env.lookback + env.decision_delay
    for number, row in enumerate(moments):
        kind = ("huge", "other")[number % 2]
        resident = _with_market(bench, base, bench.markets.shifted(row, bench.markets.base.num_bars, kind))
        bars = np.maximum(np.arange(row - _SEEN_BARS, row), earliest).astype(np.int32)
        seen = [np.asarray(bench.see(one.market, one.windows, bars)) for one in (base.resident, resident)]
        if seen[0].tobytes() != seen[1].tobytes():
            place = int(np.argmax((seen[0] != seen[1]).any(axis=1)))
            text = (
                f"What is seen at bar {bars[place]:,} changes with the bars from {row:,} on {_WORDS[kind]}: the "
                "observation is ahead of its bar."
            )
            return Check(OBSERVATIONS, "future", done, "LEAK", "they see ahead", (text,))
    return Check(OBSERVATIONS, "future", done, "pass", "equal to the bit")


def _moments(bench: Bench, window: Window, count: int, seed: int) -> list[int]:
    """First rows of the unknown inside the test months: session ends, rolls, and anywhere."""
    rng, market = np.random.default_rng(seed), bench.markets.base
    first, stop = window.test.first + 3, window.test.stop - 2
    rows = np.arange(first, stop)
    pools = [
        rows,
        np.flatnonzero(np.diff(market.session_id) != 0) + 1,
        np.flatnonzero(np.diff(market.contract_id) != 0) + 1,
    ]
    inside = [pool[(pool >= first) & (pool < stop)] for pool in pools]
    drawn = [int(rng.choice(pool)) for _ in range(count) for pool in inside if len(pool)]
    return list(dict.fromkeys(drawn))[:count]
