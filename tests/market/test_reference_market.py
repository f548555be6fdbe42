"""From the bars of contracts to the market: prices, moves, rolls and session ends equal a slow reference."""

import functools
from fractions import Fraction

import numpy as np

from random_contracts import NAMES, PRICES, Bar, changed, made_up_contracts, prepared_market, reference_world
from reference_env import Caps, Fees, Game, Rules, cash_usd, costs_usd, play
from tidewalk.market.device import CLOSING, LAST_OF_SESSION, ROLL
from tidewalk.trading.account import book

CASES = 80
TICK_E9 = 250_000_000
FEES = Fees(tick_value_usd=Fraction(25, 2), commission_usd=Fraction(9, 4), slippage_ticks=Fraction(1, 2))


@functools.cache
def cases() -> list[tuple[list[list[Bar]], object, object]]:
    """(bars of the contracts, the code's market, the reference's)."""
    made = [made_up_contracts(seed) for seed in range(CASES)]
    return [(bars, prepared_market(bars), reference_world(bars)) for bars in made]


def test_prices_contracts_and_sessions_are_those_of_the_reference():
    for seed, (_, market, world) in enumerate(cases()):
        assert (market.open_e9 // TICK_E9).tolist() == world.opens, seed
        assert (market.exit_open_e9 // TICK_E9).tolist() == world.exits, seed
        assert [market.info.contracts[i] for i in market.contract_id] == [NAMES[i] for i in world.contract], seed
        assert market.session_id.tolist() == world.session, seed


def test_moves_and_flags_are_those_of_the_reference():
    rolls = 0
    for seed, (_, market, world) in enumerate(cases()):
        bars = range(market.num_bars)
        assert market.move_ticks.tolist() == [world.move_ticks(t) for t in bars], seed
        assert ((market.flags & ROLL) != 0).tolist() == [world.is_roll(t) for t in bars], seed
        assert ((market.flags & CLOSING) != 0).tolist() == world.is_closing, seed
        ends = [world.session[t + 1] != world.session[t] for t in bars[:-1]]
        assert ((market.flags & LAST_OF_SESSION) != 0).tolist() == [*ends, True], seed
        rolls += sum(world.is_roll(t) for t in bars)
    assert rolls > CASES / 2, "the cases must roll"


def test_a_market_that_does_not_move_returns_nothing_but_costs():
    """Every contract at a price of its own, held over its rolls: no move, no cash, only fees."""
    for seed, (bars, _, _) in enumerate(cases()[:25]):
        still = changed(bars, lambda bar: dict.fromkeys(PRICES, 100 * NAMES.index(bar.contract)))
        world = reference_world(still)
        rng = np.random.default_rng(seed)
        wanted = rng.integers(0, 7, len(world.opens))
        game = Game(world, Rules(positions=3), FEES, Caps())
        rows = play(game, 0, len(world.opens) - 1, lambda t, _, low, high, w=wanted: int(np.clip(w[t], low, high)))
        assert cash_usd(game, rows) == 0, seed
        assert not any(row.gross_ticks for row in rows), seed
        own = book(prepared_market(still), 0, np.array([row.after for row in rows]))
        assert not own.gross_ticks.any(), seed
        assert own.sides.tolist() == [row.sides for row in rows], seed
        assert sum(sum(costs_usd(game, row)) for row in rows) == Fraction(17, 2) * int(own.sides.sum()), seed
