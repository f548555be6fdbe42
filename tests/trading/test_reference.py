"""P7: the code of the device and the books on the host against the slow reference, on 1,000 random markets.

Reference and code share nothing but the rules: see `reference_env`. Collection, replayed transitions, greedy passes in
all forms, passes along wanted targets, books, ledger and account limits must take the same positions and count the same
sides, fees and money, exactly.
"""

import collections
import random
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import reference_env as reference
from random_worlds import NAMES
from reference_env import MILLI, Caps, Fees, Game, Row
from reference_games import (
    BARS,
    CASES,
    EPISODE_BARS,
    GAMMA,
    LANES,
    MARKETS,
    MORE_CASES,
    N_STEP,
    TICK_USD,
    Case,
    by_values,
    by_wish,
    case_of,
    costs_of,
    found,
    games,
    limits_of,
    of_game,
    rolls_by_spread,
    walks,
)
from support import FIRST_DAY, NS_PER_HOUR
from tidewalk.market.device import MarketData
from tidewalk.trading import account as books
from tidewalk.trading import ledger
from tidewalk.trading import limits as limit_ops
from tidewalk.trading.costs import Costs
from tidewalk.trading.limits import LimitConfig, Limits
from tidewalk.trading.verify import forced, halts, verify_book

# ---- evaluation


def check_path(positions: np.ndarray, rows: list[Row], flat: int, why: object) -> None:
    path = [row.action for row in rows]
    assert positions.tolist() == path + [flat] * (BARS - len(path)), why


def check_passes(name: str) -> None:
    case, code = case_of(name), found(name)
    flat = case.rules.flat
    for number, played in enumerate(games(name)):
        game = played.game
        rows = reference.play(game, played.first, played.stop, by_values(game))
        for form in code.rollouts:
            one = of_game(form, number)
            check_path(one.positions, rows, flat, (number, "rollout"))
            assert int(one.tally.gross_ticks) == sum(row.gross_ticks for row in rows), number
            assert int(one.tally.sides) == sum(row.sides for row in rows), number
            if case.has_spread:
                assert float(one.tally.crossed_ticks) * MILLI == sum(row.crossed for row in rows), number
            if rolls_by_spread(case):
                assert int(one.tally.rolled) == sum(row.rolled for row in rows), number
        check_path(code.sequential[number], rows, flat, (number, "sequential"))
        wished = reference.play(game, played.first, played.stop, by_wish(played))
        for path in code.followed:
            check_path(path[number], wished, flat, (number, "follow"))


@pytest.mark.parametrize("name", CASES)
def test_greedy_and_wanted_passes_equal_the_reference(name):
    check_passes(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_CASES)
def test_greedy_and_wanted_passes_equal_the_reference_under_other_rules(name):
    check_passes(name)


# ---- training


def check_training(name: str) -> None:
    batch = found(name).batch
    for number, played in enumerate(games(name)):
        one, game = of_game(batch, number), played.game
        actions = range(2 * game.rules.positions + 1)
        for lane, walk in enumerate(walks(name)[number]):
            for row in range(BARS - N_STEP + 1):
                at, why = row * LANES + lane, (number, lane, row)
                episode, start = walk.episodes[walk.places[row][0]], walk.places[row][1]
                right = reference.target(game, episode, start, N_STEP)
                begun = episode[start].row
                # weights and costs are such that float32 adds them up without rounding beyond 1/1000 tick
                value = sum(Fraction(reward, MILLI) * Fraction(GAMMA) ** k for k, reward in enumerate(right.rewards))
                assert float(one.reward_t[at]) == pytest.approx(float(value), abs=1e-3, rel=1e-6), why
                discount = GAMMA ** len(right.rewards) if right.is_bootstrapped else 0.0
                assert float(one.discount_t[at]) == discount, why
                assert int(one.action_tm1[at]) == begun.action, why
                before = reference.observation(game, begun.t, begun.position)
                assert one.observation_tm1[at].tolist() == before, why
                assert np.isfinite(one.observation_t[at]).all(), why
                assert one.is_allowed_t[at].any(), why
                if right.is_bootstrapped:
                    final = reference.observation(game, right.final_row, right.final_position)
                    assert one.observation_t[at].tolist() == final, why
                    allowed = [right.low <= action <= right.high for action in actions]
                    assert one.is_allowed_t[at].tolist() == allowed, why


@pytest.mark.parametrize("name", CASES)
def test_collected_lanes_and_replayed_transitions_equal_the_reference(name):
    check_training(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_CASES)
def test_collected_lanes_and_replayed_transitions_equal_the_reference_under_other_rules(name):
    check_training(name)


def test_random_actions_are_drawn_evenly_from_those_allowed():
    """Chi-square over all rows of exploring lanes, against its 99.9 % quantile."""
    seen: dict[int, collections.Counter] = collections.defaultdict(collections.Counter)
    for name in CASES:
        for played, lanes in zip(games(name), walks(name), strict=True):
            rows = [taken.row for walk in lanes for episode in walk.episodes for taken in episode]
            for row in rows if played.epsilon == 1.0 else ():
                seen[row.high - row.low + 1][row.action - row.low] += 1
    assert set(seen) >= {1, 2, 3, 4, 5}
    for size, counts in seen.items():
        expected = counts.total() / size
        chi2 = sum((counts[k] - expected) ** 2 / expected for k in range(size))
        assert size == 1 or chi2 <= scipy.stats.chi2.ppf(0.999, size - 1), (size, counts)


# ---- the books on the host


def check_books(name: str) -> None:
    case = case_of(name)
    for number, played in enumerate(games(name)):
        game, data, costs = played.game, played.data, costs_of(played.game.fees)
        rows = reference.play(game, played.first, played.stop, by_wish(played))
        own = books.book(data, played.first, np.array([row.after for row in rows]), case.rules.roll_as)
        assert own.before_lots.tolist() == [row.before for row in rows], number
        assert own.gross_ticks.tolist() == [row.gross_ticks for row in rows], number
        assert own.sides.tolist() == [row.sides for row in rows], number
        assert own.rolled.tolist() == [row.rolled for row in rows], number
        assert (own.crossed_ticks * MILLI).tolist() == [row.crossed for row in rows], number
        limits = limits_of(played)
        check_halts(case, data, own, limits, rows)
        verify_book("reference", data, case.env, own, limits)
        check_ledger(game, costs, rows, ledger.fills(data, own, costs, forced(data, case.env, own, limits)))
        check_sessions(game, costs, rows, books.by_session(data, own))


def check_halts(case: Case, data: MarketData, own: books.Book, limits: Limits | None, rows: list[Row]) -> None:
    """The account that the host replays, and what it says forced a row flat: one of the causes of the reference."""
    if limits is not None:
        replayed = halts(data, own, limits)
        assert replayed.equity.tolist() == [row.account.equity for row in rows]
        assert [reason != "" for reason in replayed.reason] == [row.is_halted for row in rows]
    for reason, row in zip(forced(data, case.env, own, limits), rows, strict=True):
        assert (reason == "decision") == (not row.causes), row
        assert reason == "decision" or reason in row.causes, row


def bar_of(ts_ns: int) -> int:
    return (int(ts_ns) - FIRST_DAY * 24 * NS_PER_HOUR) // NS_PER_HOUR


def summed(parts) -> dict:
    """Sum of the last entry by all before it, what adds up to nothing left out."""
    total = collections.defaultdict(int)
    for *key, value in parts:
        total[tuple(key)] += value
    return {key: value for key, value in total.items() if value}


def check_ledger(game: Game, costs: Costs, rows: list[Row], made: ledger.Fills) -> None:
    """Fills and round trips are those of the reference; their money is the cash of the fills and the costs, exactly."""
    right = [(fill.bar, NAMES[fill.contract], fill.price_ticks, fill.lots) for fill in reference.fills(game, rows)]
    bars = [bar_of(ts) for ts in made.ts_ns]
    assert summed(zip(bars, made.contract, made.price_ticks, made.lots.tolist(), strict=True)) == summed(right)
    assert (np.diff(bars) >= 0).all()
    ends = dict(zip(bars, made.position_after.tolist(), strict=True))
    assert all(ends[row.t + 1] == row.after for row in rows if row.t + 1 in ends)
    causes = {row.t + 1: row.causes for row in rows}
    for bar, reason in zip(bars, made.reason, strict=True):
        assert reason in ("decision", "roll-out", "roll-in", *causes[bar]), (bar, reason)
    paid = [reference.costs_usd(game, row) for row in rows]
    fees, slippage = (sum(part) for part in zip(*paid, strict=True))
    for name, number in (("fees_usd", 0), ("slippage_usd", 1)):
        by_bar = summed(zip(bars, map(Fraction, getattr(made, name).tolist()), strict=True))
        assert by_bar == summed((row.t + 1, part[number]) for row, part in zip(rows, paid, strict=True)), name
    trips = ledger.trades(made, costs)
    found = zip(
        trips.contract,
        map(bar_of, trips.entry_ts_ns),
        map(bar_of, trips.exit_ts_ns),
        trips.gross_ticks.tolist(),
        trips.lots.tolist(),
        strict=True,
    )
    by_trip = collections.defaultdict(lambda: [0, 0])
    for contract, entry, left, gross, lots in found:
        pair = by_trip[contract, entry, left, lots > 0]
        pair[0], pair[1] = pair[0] + lots, pair[1] + gross
    expected = collections.defaultdict(lambda: [0, 0])
    for trade in reference.trades(game, rows):
        pair = expected[NAMES[trade.contract], trade.entry_bar, trade.exit_bar, trade.lots > 0]
        pair[0], pair[1] = pair[0] + trade.lots, pair[1] + trade.lots * (trade.exit_ticks - trade.entry_ticks)
    assert by_trip == expected
    cash = reference.cash_usd(game, rows)
    assert Fraction(float(trips.gross_usd.sum())) == cash, "money is exact"
    assert cash == sum(row.gross_ticks for row in rows) * TICK_USD, "the marks of a path that ends flat are its cash"
    assert trips.net_usd.sum() == pytest.approx(float(cash - fees - slippage), abs=1e-9)


def check_sessions(game: Game, costs: Costs, rows: list[Row], own: books.Sessions) -> None:
    """A row belongs to the session of the bar in which it fills; equity is the sum of sessions, to the millitick."""
    net = books.gross_usd(costs, own.gross_ticks) - books.costs_usd(costs, own.sides, own.crossed_ticks, own.rolled)
    right = summed((game.world.session[row.t + 1], row.net) for row in rows)
    days = [int(day) - FIRST_DAY for day in own.trade_day]
    found = {(day,): round(usd / float(TICK_USD) * MILLI) for day, usd in zip(days, net, strict=True)}
    assert {day: milliticks for day, milliticks in found.items() if milliticks} == right
    assert sum(found.values()) == rows[-1].account.equity == sum(row.net for row in rows)


@pytest.mark.parametrize("name", CASES)
def test_books_ledger_sessions_and_halts_equal_the_reference(name):
    check_books(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_CASES)
def test_books_ledger_sessions_and_halts_equal_the_reference_under_other_rules(name):
    check_books(name)


def test_costs_and_limits_are_rounded_as_the_rules_say():
    """A side and a rolled lot half up to 1/1000 tick, a limit down, a recorded half spread half up."""
    rng = random.Random(0)
    for _ in range(300):
        tick_usd = rng.choice((Fraction(25, 2), Fraction(5), Fraction(5, 4), Fraction(125, 4), Fraction(1, 2)))
        usd = [Fraction(rng.randrange(1, 10**7), 100) for _ in ("capital", "daily loss", "drawdown")]
        slippage, fee = Fraction(rng.randrange(9), 8), rng.choice((None, Fraction(rng.randrange(999), 100)))
        fees, caps = Fees(tick_usd, Fraction(rng.randrange(999), 100), slippage, fee), Caps.of_usd(tick_usd, *usd)
        found = limit_ops.resolve(LimitConfig(*map(float, usd)), costs_of(fees))
        assert (int(found.side), int(found.roll)) == (fees.side, fees.roll), fees
        rounded = (int(found.capital), int(found.daily_loss), int(found.drawdown))
        assert rounded == (caps.capital, caps.daily_loss, caps.trailing), (tick_usd, usd)
    halves = [Fraction(k, 16) for k in range(300)] + [Fraction(k, 1000) for k in range(3_000)]
    found = limit_ops.to_milliticks(jnp.asarray([float(half) for half in halves], jnp.float32))
    assert found.tolist() == [reference.half_up(MILLI * half) for half in halves]


# ---- the test is not blind


def events_of(game: Game, rows: list[Row]) -> collections.Counter:
    """How often each of the things that could go wrong took place."""
    count: collections.Counter = collections.Counter()
    rules, world = game.rules, game.world
    for before, row in zip([rows[0], *rows], rows, strict=False):
        is_roll = world.is_roll(row.t)
        count["roll with a position"] += is_roll and row.before != 0
        count["roll held over"] += is_roll and row.before * row.after > 0
        count["roll and flip at once"] += is_roll and row.before * row.after < 0
        count["rolled by spread"] += row.rolled > 0
        count["roll with another size"] += row.rolled > 0 and row.before != row.after
        count["flip"] += row.before * row.after < 0
        count["partial close"] += row.before * row.after > 0 and abs(row.after) < abs(row.before)
        count["closed for the session"] += "close" in row.causes and row.before != 0
        count["held over a session"] += row.after != 0 and world.session[row.t + 2] != world.session[row.t + 1]
        count["entry forbidden"] += world.is_no_entry[row.t] and not row.causes and row.before == 0
        count["enlarging forbidden"] += world.is_no_entry[row.t] and not row.causes and row.before != 0
        count["recorded spread paid"] += row.crossed > 0
        count["closed by daily loss"] += "daily-loss" in row.causes and row.before != 0
        count["free again after a daily loss"] += "daily-loss" in before.causes and not row.causes
        count["closed by drawdown"] += "drawdown" in row.causes and row.before != 0
        count["closed by ruin"] += "ruin" in row.causes and row.before != 0
        count["closed by a halt at a roll"] += row.is_halted and is_roll and row.before != 0
        count["closed at the end of the range"] += "end" in row.causes and row.before != 0
        count["level above the most allowed"] += (
            rules.max_position is not None and rules.max_position < rules.positions * rules.lots_per_level
        )
    return count


LEAST = {
    "roll with a position": 200,
    "roll held over": 150,
    "roll and flip at once": 3,
    "rolled by spread": 100,
    "roll with another size": 25,
    "flip": 250,
    "partial close": 300,
    "closed for the session": 350,
    "held over a session": 600,
    "entry forbidden": 1_500,
    "enlarging forbidden": 700,
    "recorded spread paid": 4_500,
    "closed by daily loss": 150,
    "free again after a daily loss": 90,
    "closed by drawdown": 150,
    "closed by ruin": 100,
    "closed by a halt at a roll": 4,
    "closed at the end of the range": 100,
    "level above the most allowed": 12_500,
    "episodes terminated": 2_500,
    "episodes truncated": 3_500,
    "terminated where it would be truncated": 70,
    "a daily halt kept in a record": 1_000,
    "a halted final state after a truncation": 150,
}
"""How often each of them has to be seen in the default run; about twice as often are."""


def test_the_random_markets_show_everything_that_could_go_wrong():
    assert MARKETS * len(CASES) >= 1_000
    count: collections.Counter = collections.Counter()
    for name in CASES:
        for played, lanes in zip(games(name), walks(name), strict=True):
            count += events_of(played.game, reference.play(played.game, played.first, played.stop, by_wish(played)))
            for walk in lanes:
                steps = [taken for episode in walk.episodes for taken in episode]
                count["episodes terminated"] += sum(taken.is_terminated for taken in steps)
                count["episodes truncated"] += sum(taken.is_truncated for taken in steps)
                ended = [episode for episode in walk.episodes if episode[-1].is_terminated]
                count["terminated where it would be truncated"] += sum(
                    len(episode) == EPISODE_BARS or episode[-1].row.t == played.stop - 2 for episode in ended
                )
                halted = [taken for taken in steps if taken.row.account.lost_day and not taken.is_terminated]
                count["a daily halt kept in a record"] += len(halted)
                count["a halted final state after a truncation"] += sum(taken.is_truncated for taken in halted)
    few = {name: count[name] for name, least in LEAST.items() if count[name] < least}
    assert not few, f"seen too seldom: {few} of {dict(count)}"
