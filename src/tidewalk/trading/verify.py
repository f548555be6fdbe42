"""The rules once more, on the host, for a whole path at once: what forced it flat, and whether it broke any.

Written apart from the device code, from the rules in words, so that the two can never disagree in silence.
"""

import dataclasses

import numpy as np

from tidewalk.core.errors import BooksError
from tidewalk.market.device import CLOSING, NO_ENTRY, MarketData
from tidewalk.trading.account import Book, book, half_spreads
from tidewalk.trading.env import EnvConfig
from tidewalk.trading.ledger import DECISION, END
from tidewalk.trading.limits import MILLI, Limits


@dataclasses.dataclass(frozen=True)
class Halts:
    """Rows of a book that account limits force flat; arrays `[n]`."""

    equity: np.ndarray
    """Net result since the start after each row, in milliticks, int64."""
    reason: np.ndarray
    """"ruin", "drawdown", "daily-loss", or "" where the row is free."""
    over: tuple[int, str] | None = None
    """Row whose mark ended the account for the rest of the range, and why; None where nothing did."""
    lost_all: bool = False
    """Whether the capital was ever gone, also by the cost of the fill that a drawdown forced."""


def halts(market: MarketData, account: Book, limits: Limits | None) -> Halts:
    """Replay of an account: which rows its limits force flat. All in int64 thousandths of a tick.

    Row t is marked at the open of bar t+2; what that mark breaches holds from row t+1 on, for the rest of the range
    (ruin, drawdown) or of the session (daily loss).
    """
    count = len(account.after_lots)
    reason = np.full(count, "", object)
    if limits is None:
        return Halts(np.zeros(count, np.int64), reason)
    net = net_milliticks(market, account, limits)
    equity = np.cumsum(net)
    session = market.session_id[account.fill_bars]
    starts = np.concatenate([[True], session[1:] != session[:-1]]) if count else np.zeros(0, bool)
    before_session = np.repeat((equity - net)[starts], np.diff(np.append(np.flatnonzero(starts), count)))
    if limits.daily_loss is not None:
        is_hit = (equity - before_session <= -int(limits.daily_loss))[:-1] & ~starts[1:]
        reason[1:][is_hit] = "daily-loss"
    ends = []
    if limits.capital is not None:
        ends.append((equity <= -int(limits.capital), "ruin"))
    if limits.drawdown is not None:
        peak = np.maximum.accumulate(np.maximum(equity, 0))
        ends.append((peak - equity >= int(limits.drawdown), "drawdown"))
    lost_all = any(why == "ruin" and is_hit.any() for is_hit, why in ends)
    hits = [(int(np.argmax(is_hit)), why) for is_hit, why in ends if is_hit.any()]
    if not hits:
        return Halts(equity, reason)
    row, why = min(hits, key=lambda hit: hit[0])
    reason[row + 1 :] = why
    return Halts(equity, reason, over=(row, why), lost_all=lost_all)


def net_milliticks(market: MarketData, account: Book, limits: Limits) -> np.ndarray:
    """Net result of every row of a book in milliticks, int64, as limits count it."""
    half_ticks = half_spreads(market, account.first, len(account.after_lots)).astype(np.float32)
    crossed = np.floor(half_ticks * np.float32(MILLI) + np.float32(0.5)).astype(np.int64) * account.sides
    paid = int(limits.side) * account.sides + int(limits.roll) * account.rolled + crossed
    return account.gross_ticks * MILLI - paid


def forced(market: MarketData, env: EnvConfig, account: Book, limits: Limits | None = None) -> np.ndarray:
    """Reason of every decision `[n]`: the strongest rule that allows only flat there, or "decision"."""
    reason = np.full(len(account.after_lots), DECISION, object)
    reason[-1:] = END
    if env.flat_at_close:
        reason[_has_flag(market, account, CLOSING)] = "close"
    halted = halts(market, account, limits).reason
    return np.where(halted != "", halted, reason)


def _must_be_flat(market: MarketData, env: EnvConfig, account: Book, limits: Limits | None) -> np.ndarray:
    """Where `forced` has a rule; without limits, which take a replay of the account, with no words made."""
    if limits is not None:
        return forced(market, env, account, limits) != DECISION
    must = _has_flag(market, account, CLOSING) & env.flat_at_close
    must[-1:] = True
    return must


def _has_flag(market: MarketData, account: Book, flag: int) -> np.ndarray:
    return (market.flags[account.fill_bars - 1] & flag) != 0


def verify_book(policy: str, market: MarketData, env: EnvConfig, account: Book, limits: Limits | None = None) -> None:
    """Check a book against market, rules and limits; every policy of a study is checked before its result is written.

    Args:
        policy: whose book it is, for the message.
        market: the market of the book.
        env: the rules.
        account: the book.
        limits: account limits the policy was under; None where it is under none.

    Raises:
        BooksError: a position that the rules do not allow, or amounts that do not follow from the positions.
    """
    before, after = account.before_lots, account.after_lots
    most = env.max_lots
    is_late = _has_flag(market, account, NO_ENTRY) & (env.no_entry_minutes > 0)
    enters = (before * after < 0) | (np.abs(after) > np.abs(before))
    must_be_flat = _must_be_flat(market, env, account, limits)
    broken = {
        f"is not a multiple of {env.lots_per_level} lots": after % env.lots_per_level != 0,
        f"exceeds {most} lots": np.abs(after) > most,
        "is short in a study of long positions": (after < 0) & (env.direction == "long"),
        "is long in a study of short positions": (after > 0) & (env.direction == "short"),
        "was entered in the minutes without entries": is_late & enters,
        "is not flat where it must be": must_be_flat & (after != 0),
    }
    for what, is_broken in broken.items():
        if is_broken.any():
            row = int(np.argmax(is_broken))
            why = forced(market, env, account, limits)[row]
            raise _fault(policy, market, account, row, f"{after[row]} lots after {before[row]}, which {what} ({why})")
    _check_amounts(policy, market, env, account)


def _check_amounts(policy: str, market: MarketData, env: EnvConfig, account: Book) -> None:
    """Raises a BooksError unless every amount is that of the positions."""
    own = book(market, account.first, account.after_lots, env.roll_as)
    for field in dataclasses.fields(Book)[1:]:
        differs = getattr(own, field.name) != getattr(account, field.name)
        if differs.any():
            row = int(np.argmax(differs))
            found, due = getattr(account, field.name)[row], getattr(own, field.name)[row]
            raise _fault(policy, market, account, row, f"{field.name} is {found}, and its positions give {due}")


def _fault(policy: str, market: MarketData, account: Book, row: int, what: str) -> BooksError:
    bar = account.first + row
    when = np.datetime64(int(market.ts_ns[bar]), "ns")
    return BooksError(
        f"a fault of tidewalk, please report it: the book of {policy} on {market.info.symbol} breaks a rule at the "
        f"decision of bar {bar} ({when}Z): {what}."
    )
