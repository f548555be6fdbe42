"""The trading environment once more, slowly: plain Python integers, written from the rules and not from the code.

A *row* is a decision. Decision t is made at the close of bar t, fills at the open of bar t+1 in the contract that is
front there, is marked at the open of bar t+2 at the price of the contract held, and belongs to the session of bar t+1.
Ticks are integers, costs integers of 1/1000 tick (*milliticks*), money is a `Fraction`. Nothing here imports tidewalk.
"""

import dataclasses
from collections import deque
from collections.abc import Callable
from fractions import Fraction

MILLI = 1000
Choose = Callable[[int, int, int, int], int]
"""(row, position index held, lowest and highest index allowed) -> index chosen."""


def half_up(value: Fraction) -> int:
    """The nearest integer, ties upwards."""
    return (value + Fraction(1, 2)).__floor__()


@dataclasses.dataclass(frozen=True)
class Rules:
    """What may be held when, and how a roll is charged."""

    positions: int = 1
    lots_per_level: int = 1
    max_position: int | None = None
    direction: str = "both"
    flat_at_close: bool = False
    roll_as: str = "sides"
    delay: int = 0
    lookback: int = 1

    @property
    def flat(self) -> int:
        return self.positions

    def lots(self, index: int) -> int:
        return (index - self.positions) * self.lots_per_level


@dataclasses.dataclass(frozen=True)
class Fees:
    """What a contract side and a rolled lot cost."""

    tick_value_usd: Fraction
    commission_usd: Fraction
    slippage_ticks: Fraction
    roll_fee_usd: Fraction | None = None

    @property
    def roll_usd(self) -> Fraction:
        if self.roll_fee_usd is not None:
            return self.roll_fee_usd
        return 2 * self.commission_usd + self.slippage_ticks * self.tick_value_usd

    @property
    def side(self) -> int:
        """Milliticks per contract and side, the recorded spread apart."""
        return half_up(MILLI * (self.commission_usd / self.tick_value_usd + self.slippage_ticks))

    @property
    def roll(self) -> int:
        """Milliticks per lot rolled as a calendar spread."""
        return half_up(MILLI * self.roll_usd / self.tick_value_usd)


@dataclasses.dataclass(frozen=True)
class Caps:
    """Limits of the account in milliticks; None: no such limit."""

    capital: int | None = None
    daily_loss: int | None = None
    trailing: int | None = None

    @staticmethod
    def of_usd(tick_value_usd: Fraction, *limits_usd: Fraction | None) -> "Caps":
        """Capital, daily loss and trailing drawdown in USD, rounded down to 1/1000 tick."""
        return Caps(*(None if usd is None else (MILLI * usd / tick_value_usd).__floor__() for usd in limits_usd))


@dataclasses.dataclass(frozen=True)
class World:
    """A market as lists over bars; prices in ticks."""

    opens: list[int]
    """Open of the front contract: what a fill in it pays."""
    exits: list[int]
    """Price at which the contract of the bar before can be left when the bar opens."""
    contract: list[int]
    session: list[int]
    is_closing: list[bool]
    """Of a decision: its fill is the last chance to be flat before the break."""
    is_hole: list[bool]
    """Of a decision: its move spans a hole in the data."""
    is_no_entry: list[bool]
    """Of a decision: its fill lies in the last minutes of the scheduled session."""
    half_spread: list[Fraction] | None
    """Half the recorded spread in ticks when the bar opens; None where costs do not use it."""
    features: list[list[float]]

    def move_ticks(self, t: int) -> int:
        """What one lot held from the fill of decision t to that of the next earns."""
        return self.exits[t + 2] - self.opens[t + 1] if t + 2 < len(self.opens) else 0

    def is_roll(self, t: int) -> bool:
        return t + 1 < len(self.opens) and self.contract[t + 1] != self.contract[t]

    def half(self, t: int) -> int:
        """Milliticks of half the spread at the fill of decision t."""
        return 0 if self.half_spread is None else half_up(MILLI * self.half_spread[t + 1])


@dataclasses.dataclass(frozen=True)
class Game:
    """A market, the rules, the costs and the limits."""

    world: World
    rules: Rules
    fees: Fees
    caps: Caps


@dataclasses.dataclass(frozen=True)
class Account:
    """Milliticks since the start of the episode or range."""

    position: int
    equity: int = 0
    peak: int = 0
    day: int = 0
    session: int | None = None
    """Session of the last fill bar."""
    over: tuple[str, ...] = ()
    """"ruin", "drawdown": limits reached for good; nothing is ever held again."""
    lost_day: bool = False
    """The loss of the session has reached its limit, and the next fill lies in that session."""

    @property
    def is_halted(self) -> bool:
        return bool(self.over) or self.lost_day


@dataclasses.dataclass(frozen=True)
class Row:
    """Everything about one decision."""

    t: int
    low: int
    high: int
    is_halted: bool
    causes: tuple[str, ...]
    """What forbade everything but flat."""
    position: int
    """Index before the fill."""
    action: int
    """Index after the fill."""
    before: int
    after: int
    sides: int
    rolled: int
    crossed: int
    """Milliticks of recorded half spreads."""
    gross_ticks: int
    net: int
    account: Account
    """After the mark."""


# ---- one row


def bounds(game: Game, t: int, account: Account, *, is_last: bool) -> tuple[int, int, tuple[str, ...]]:
    """Lowest and highest index allowed, and what forbade everything but flat."""
    rules, world = game.rules, game.world
    levels = rules.positions
    if rules.max_position is not None:
        levels = min(levels, rules.max_position // rules.lots_per_level)
    low = rules.flat if rules.direction == "long" else rules.flat - levels
    high = rules.flat if rules.direction == "short" else rules.flat + levels
    if world.is_no_entry[t]:
        low = max(low, min(rules.flat, account.position))
        high = min(high, max(rules.flat, account.position))
    causes = ["close"] if rules.flat_at_close and world.is_closing[t] else []
    causes += [*account.over] + ["daily-loss"] * account.lost_day
    if is_last:
        causes.append("end")
    return (rules.flat, rules.flat, tuple(causes)) if causes else (low, high, ())


def traded(rules: Rules, before: int, after: int, *, is_roll: bool) -> tuple[int, int]:
    """Contract sides, and lots rolled as a calendar spread."""
    if not is_roll:
        return abs(after - before), 0
    if rules.roll_as == "sides":
        return abs(before) + abs(after), 0
    rolled = min(abs(before), abs(after)) if before * after > 0 else 0
    return abs(before) + abs(after) - 2 * rolled, rolled


def charge(game: Game, t: int, sides: int, rolled: int) -> tuple[int, int]:
    """Milliticks that a fill costs: fixed, and recorded half spreads."""
    return game.fees.side * sides + game.fees.roll * rolled, sides * game.world.half(t)


def act(game: Game, t: int, account: Account, choose: Choose, *, is_last: bool = False) -> Row:
    """Decide, fill and mark row t."""
    rules, world = game.rules, game.world
    low, high, causes = bounds(game, t, account, is_last=is_last)
    action = choose(t, account.position, low, high)
    assert low <= action <= high, f"row {t}: {action} is not in [{low}, {high}]"
    before, after = rules.lots(account.position), rules.lots(action)
    sides, rolled = traded(rules, before, after, is_roll=world.is_roll(t))
    fixed, crossed = charge(game, t, sides, rolled)
    gross_ticks = after * world.move_ticks(t)
    net = MILLI * gross_ticks - fixed - crossed
    marked = marked_account(game, t, account, action, net)
    return Row(
        t=t,
        low=low,
        high=high,
        is_halted=account.is_halted,
        causes=causes,
        position=account.position,
        action=action,
        before=before,
        after=after,
        sides=sides,
        rolled=rolled,
        crossed=crossed,
        gross_ticks=gross_ticks,
        net=net,
        account=marked,
    )


def marked_account(game: Game, t: int, account: Account, action: int, net: int) -> Account:
    """The account at the open of bar t+2, and whether the limits let it trade there."""
    world, caps = game.world, game.caps
    session = world.session[t + 1]
    equity = account.equity + net
    peak = max(account.peak, equity)
    day = net if session != account.session else account.day + net
    is_ruined = caps.capital is not None and caps.capital + equity <= 0
    is_drawn_down = caps.trailing is not None and peak - equity >= caps.trailing
    reached = {"ruin": is_ruined, "drawdown": is_drawn_down}
    over = tuple(name for name, is_reached in reached.items() if is_reached or name in account.over)
    stays = t + 2 < len(world.session) and world.session[t + 2] == session
    lost_day = caps.daily_loss is not None and stays and day <= -caps.daily_loss
    return Account(action, equity, peak, day, session, over, lost_day)


def play(game: Game, first: int, stop: int, choose: Choose) -> list[Row]:
    """The rows of a range: flat before it, flat after its last decision."""
    account, rows = Account(game.rules.flat), []
    for t in range(first, stop):
        rows.append(act(game, t, account, choose, is_last=t == stop - 1))
        account = rows[-1].account
    return rows


def seen(game: Game, t: int) -> list[float]:
    """Features that the decision of row t knows, oldest bar first."""
    newest = t - game.rules.delay
    return [x for bar in range(newest - game.rules.lookback + 1, newest + 1) for x in game.world.features[bar]]


def observation(game: Game, t: int, position: int) -> list[float]:
    return seen(game, t) + [float(i == position) for i in range(2 * game.rules.positions + 1)]


# ---- training


@dataclasses.dataclass(frozen=True)
class Taken:
    """A row as the learner sees it."""

    row: Row
    reward: int
    """Milliticks; with the cost of the forced close where the account is over."""
    is_terminated: bool
    is_truncated: bool


def take(game: Game, t: int, account: Account, choose: Choose, *, age: int, stop: int, episode_bars: int) -> Taken:
    """Row t of an episode that has lasted `age` rows, on train decisions that end before `stop`."""
    row = act(game, t, account, choose)
    is_terminated = bool(row.account.over)
    reward = row.net
    if is_terminated:
        reward -= sum(charge(game, t + 1, abs(row.after), 0))
    is_truncated = t + 1 >= stop or age + 1 >= episode_bars or game.world.is_hole[t + 1]
    return Taken(row, reward, is_terminated, is_truncated and not is_terminated)


@dataclasses.dataclass(frozen=True)
class Target:
    """What n rows of an episode teach: rewards, and the state whose value is added at weight gamma^steps, if any."""

    rewards: list[int]
    is_bootstrapped: bool
    final_row: int
    final_position: int
    low: int
    high: int
    """Indices allowed in the final state, were it to act."""


def target(game: Game, episode: list[Taken], start: int, n_step: int) -> Target:
    """From row `start` of an episode: cut at its end."""
    parts = episode[start : start + n_step]
    last = parts[-1]
    t, account = last.row.t + 1, last.row.account
    low, high, _ = bounds(game, t, account, is_last=False)
    return Target([part.reward for part in parts], not last.is_terminated, t, account.position, low, high)


# ---- the ledger: prices and cash, without ever using a move


@dataclasses.dataclass(frozen=True)
class Fill:
    bar: int
    contract: int
    lots: int
    held: int
    price_ticks: int
    causes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Trade:
    """Lots that were entered in one fill and left in another: first in, first out."""

    contract: int
    lots: int
    entry_bar: int
    entry_ticks: int
    exit_bar: int
    exit_ticks: int


def fills(game: Game, rows: list[Row]) -> list[Fill]:
    """What was bought and sold, each in its contract at its price."""
    world, made = game.world, []
    for row in rows:
        bar, causes = row.t + 1, row.causes
        parts = [(world.contract[bar], row.after - row.before, row.after, world.opens[bar])]
        if world.is_roll(row.t):
            parts = [
                (world.contract[bar - 1], -row.before, 0, world.exits[bar]),
                (world.contract[bar], row.after, row.after, world.opens[bar]),
            ]
        made += [Fill(bar, name, lots, held, price, causes) for name, lots, held, price in parts if lots]
    return made


def cash_usd(game: Game, rows: list[Row]) -> Fraction:
    """Money of the fills, before costs: all there is once nothing is held."""
    return sum((-fill.lots * fill.price_ticks * game.fees.tick_value_usd for fill in fills(game, rows)), Fraction(0))


def costs_usd(game: Game, row: Row) -> tuple[Fraction, Fraction]:
    """Fees (commission and roll fee) and slippage (fixed and recorded) of a row, exact."""
    fees, world = game.fees, game.world
    half = Fraction(0) if world.half_spread is None else world.half_spread[row.t + 1]
    slippage = row.sides * (fees.slippage_ticks + half) * fees.tick_value_usd
    return row.sides * fees.commission_usd + row.rolled * fees.roll_usd, slippage


def trades(game: Game, rows: list[Row]) -> list[Trade]:
    """Round trips, first in, first out, within each contract."""
    queues: dict[int, deque[tuple[int, int, int]]] = {}
    done = []
    for fill in fills(game, rows):
        queue, lots = queues.setdefault(fill.contract, deque()), fill.lots
        while lots and queue and queue[0][0] * lots < 0:
            open_lots, bar, ticks = queue.popleft()
            size = min(abs(open_lots), abs(lots)) * (1 if open_lots > 0 else -1)
            done.append(Trade(fill.contract, size, bar, ticks, fill.bar, fill.price_ticks))
            lots += size
            if open_lots != size:
                queue.appendleft((open_lots - size, bar, ticks))
        if lots:
            queue.append((lots, fill.bar, fill.price_ticks))
    assert not any(queues.values()), "a range ends flat"
    return done
