"""Which contract is front in each session, under the roll rules a user can ask for.

A rule sees trading per contract and session, and for session s only what is known before it opens, with one exception
that no trader can get around: a contract without any bar in session s cannot be held or entered in it.

Laws of every rule:

* the front only goes forward: once left, a contract never comes back, and the first crossing counts, however often
  the volumes cross again;
* no contract is held over the close of a session after its last safe day (`expiries.last_safe_date`); where no other
  has bars then, the session is left out;
* the usual delivery months go before serial ones, which are entered only where no usual one has bars.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.core.words import are, counted
from tidewalk.data.bars import BarTable, OpenInterest
from tidewalk.data.calendar.sessions import SessionColumns
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.terms import NEVER, Terms, date_of

RULES = ("volume", "open-interest", "calendar:N", "table:FILE")
"""Roll rules understood here."""

PATIENCE = 3
"""Sessions in a row that an unexpected crossing, or absence, of a contract must last before it is believed."""
NORMAL_SESSIONS = 5
"""Sessions whose median says how much a contract trades usually."""

_UNKNOWN_FRAC = 0.25
_MINUTE_NS = 60_000_000_000
_STALE_NS = 10 * 86_400_000_000_000
"""Open interest published longer ago than this is no longer known: a hole in the data, or the code a decade ago."""


@dataclass(frozen=True)
class Activity:
    """Trading per contract and session; contracts in order of expiry, sessions in order of time."""

    session_day: NDArray[np.int32]
    """[S] trade dates on which any contract has a bar."""
    open_ns: NDArray[np.int64]
    """[S] UTC moment at which the session opens: as scheduled, or its first bar where that is earlier."""
    volume: NDArray[np.float64]
    """[C, S]."""
    has_bars: NDArray[np.bool_]
    """[C, S]."""


@dataclass(frozen=True)
class FrontChoice:
    """Front contract per session."""

    front: NDArray[np.int64]
    """[S] contract index, -1 where no contract can be held."""
    reasons: dict[int, str]
    """Why the contract changed, by session index."""


def parse_rule(rule: str) -> tuple[str, str]:
    """Name and argument of a rule such as "calendar:8"; the argument of "volume" and "open-interest" is empty.

    Raises:
        ConfigError: unknown rule.
    """
    name, _, argument = rule.partition(":")
    if rule in ("volume", "open-interest") or (name == "table" and argument):
        return name, argument
    if name == "calendar" and argument.isdecimal() and argument.isascii() and len(argument) < 5:
        return name, argument
    raise ConfigError(f"--roll {rule!r} is not known{did_you_mean(rule, RULES)}: use one of {', '.join(RULES)}")


def activity_of(tables: tuple[BarTable, ...], columns: tuple[SessionColumns, ...]) -> Activity:
    """Volume and presence of every contract in every session in which any of them has a bar."""
    starts = [np.flatnonzero(np.diff(column.trade_day, prepend=np.int32(-(2**31)))) for column in columns]
    days = [column.trade_day[start] for column, start in zip(columns, starts, strict=True)]
    session_day = np.unique(np.concatenate(days))
    volume = np.zeros((len(tables), session_day.size))
    has_bars = np.zeros(volume.shape, np.bool_)
    open_ns = np.full(session_day.size, np.iinfo(np.int64).max)
    for i, (table, column) in enumerate(zip(tables, columns, strict=True)):
        session = np.searchsorted(session_day, days[i])
        volume[i, session] = np.add.reduceat(table.volume, starts[i])
        has_bars[i, session] = True
        since_open_ns = column.minute_of_session[starts[i]].astype(np.int64) * _MINUTE_NS
        open_ns[session] = np.minimum(open_ns[session], table.ts_ns[starts[i]] - since_open_ns)
    return Activity(session_day, open_ns, volume, has_bars)


def known_open_interest(
    tables: tuple[BarTable, ...], published: tuple[OpenInterest, ...], activity: Activity
) -> NDArray[np.float64]:
    """Open interest of every contract as known when each session opens, `[C, S]`; NaN where nothing recent is."""
    known = np.full(activity.volume.shape, np.nan)
    for i, table in enumerate(tables):
        entries = [entry for entry in published if entry.contract == table.contract and len(entry.lots)]
        if not entries:
            continue
        known_ns = np.concatenate([entry.known_ns for entry in entries])
        trade_day = np.concatenate([entry.trade_day for entry in entries])
        lots = np.concatenate([entry.lots for entry in entries])
        # Published together, the count of the later day is the one that is meant.
        order = np.lexsort((trade_day, known_ns))
        row = np.searchsorted(known_ns[order], activity.open_ns, side="right") - 1
        is_known = (row >= 0) & (activity.open_ns - known_ns[order][row] <= _STALE_NS)
        known[i, is_known] = lots[order][row[is_known]]
    return known


def choose_by_activity(name: str, score: NDArray[np.float64], activity: Activity, terms: Terms) -> FrontChoice:
    """Front of every session by what a contract has of something: volume or open interest.

    The front is left for the usual delivery month of later expiry with the highest score, if that is strictly above the
    front's own; the nearer expiry wins a tie. An unexpected crossing counts when it has lasted `PATIENCE` sessions, for
    one busy day of a far contract, or one wrong count, is no migration. Expected is one of the next `Terms.reach` usual
    months, in the season before the front's last safe day or when the front trades less than half of its usual.

    Args:
        name: the rule, given as the reason of its rolls.
        score: [C, S] known before the session opens; NaN where not known, which never crosses nor is crossed.
        activity: trading of the contracts.
        terms: their dates.
    """

    def rival(current: int, s: int, can_hold: NDArray[np.bool_]) -> int | None:
        later = np.arange(current + 1, len(can_hold))
        crossed = later[(score[later, s] > score[current, s]) & can_hold[later] & terms.is_usual[later]]
        if not crossed.size:
            return None
        past = slice(s - PATIENCE + 1, s + 1)
        lasted = (score[crossed, past] > score[current, past]).all(axis=1) & (s + 1 >= PATIENCE)
        in_season = (
            terms.safe_day[current] - activity.session_day[s] <= terms.season_days or not terms.is_scheduled[current]
        )
        expected = terms.place[crossed] <= terms.place[current] + terms.reach
        believed = crossed[lasted | (expected & (in_season or _lost_trading(activity, current, s)))]
        return int(believed[np.argmax(score[believed, s])]) if believed.size else None

    return _walk(activity, terms, score, np.full(len(score), NEVER), rival, name)


def _lost_trading(activity: Activity, current: int, s: int) -> bool:
    """Whether the volume of the session before was less than half of what was usual before that.

    A contract without any bar in that session says nothing: its bars may be missing.
    """
    before = activity.volume[current, max(s - 1 - NORMAL_SESSIONS, 0) : max(s - 1, 0)]
    is_seen = before.size > 0 and bool(activity.has_bars[current, s - 1])
    return is_seen and bool(activity.volume[current, s - 1] < np.median(before) / 2)


def choose_by_calendar(activity: Activity, tables: tuple[BarTable, ...], terms: Terms, days_before: int) -> FrontChoice:
    """Front of every session, left so many calendar days before the last trading day.

    Raises:
        ConfigError: the contracts do not name their delivery months.
    """
    unnamed = [table.contract for table, day in zip(tables, terms.expiry_day, strict=True) if day is None]
    if unnamed:
        raise ConfigError(
            f"--roll calendar needs delivery months, but {unnamed[0]!r} names none: use --roll table:FILE"
        )
    leave_day = np.array([day - days_before for day in terms.expiry_day if day is not None], np.int64)
    flat = np.zeros(activity.volume.shape)
    return _walk(activity, terms, flat, leave_day, lambda *_: None, "calendar")


_Rival = Callable[[int, int, NDArray[np.bool_]], int | None]


def _walk(
    activity: Activity,
    terms: Terms,
    score: NDArray[np.float64],
    leave_day: NDArray[np.int64],
    rival: _Rival,
    name: str,
) -> FrontChoice:
    """Front by session, forward only: a rival takes over, or the front has to be left.

    It has to be left after its last safe day ("cap"), on the day the rule leaves it (`leave_day`, "calendar"), and when
    it has no bars ("expired"). A contract absent out of season may come back: it is waited for, `PATIENCE` sessions.
    """
    front = np.full(activity.session_day.size, -1, np.int64)
    reasons: dict[int, str] = {}
    current, absent = -1, 0
    for s, day in enumerate(activity.session_day.tolist()):
        has_bars = activity.has_bars[:, s]
        can_hold = has_bars & (terms.safe_day >= day)
        lasting = can_hold & (leave_day > day)
        if current < 0:
            current = _first(lasting & terms.is_usual, lasting, can_hold & terms.is_usual, can_hold)
        elif (winner := rival(current, s, can_hold)) is not None:
            current, reasons[s] = winner, name
        absent = absent + 1 if current >= 0 and not has_bars[current] else 0
        is_due = current >= 0 and not lasting[current]
        out_of_season = terms.is_scheduled[current] and terms.safe_day[current] - day > terms.season_days
        if is_due and not (0 < absent < PATIENCE and out_of_season):
            heir = _heir(current, lasting, terms, score[:, s])
            if heir is None and not can_hold[current]:
                heir = _heir(current, can_hold, terms, score[:, s])
            if heir is not None:
                reasons[s] = name if day >= leave_day[current] else "cap" if has_bars[current] else "expired"
                current, absent = heir, 0
        if current >= 0 and can_hold[current]:
            front[s] = current
    return FrontChoice(front, reasons)


def _first(*masks: NDArray[np.bool_]) -> int:
    """Index of the first true value of the first mask that has one; -1 where none has."""
    return next((int(np.argmax(mask)) for mask in masks if mask.any()), -1)


def _heir(current: int, can_hold: NDArray[np.bool_], terms: Terms, score: NDArray[np.float64]) -> int | None:
    """Contract that follows a front which has to be left: of the next usual months with bars, the one that leads."""
    later = current + 1 + np.flatnonzero(can_hold[current + 1 :])
    usual = later[terms.is_usual[later]]
    near = usual[terms.place[usual] <= terms.place[current] + terms.reach]
    if near.size:
        return int(near[np.argmax(np.nan_to_num(score[near], nan=-1.0))])
    return next((int(some[0]) for some in (usual, later) if some.size), None)


def unknown_score_findings(choice: FrontChoice, score: NDArray[np.float64]) -> list[Finding]:
    """What to know where the rule could not compare; the first sessions of the data seldom have a count before them."""
    held = np.flatnonzero(choice.front >= 0)
    unknown = int(np.count_nonzero(np.isnan(score[choice.front[held], held])))
    if not unknown:
        return []
    text = (
        f"open interest of the front is not known in {unknown} of {counted(held.size, 'session')}, in which it was "
        "held: the statistics in the data begin later, have holes, or lack contracts"
    )
    return [Finding("roll", text, unknown, is_warning=unknown > _UNKNOWN_FRAC * held.size)]


def choice_findings(
    choice: FrontChoice, name: str, tables: tuple[BarTable, ...], activity: Activity, terms: Terms
) -> list[Finding]:
    """What a user must know about a choice: no volumes to choose by, contracts left too early, sessions left out."""
    findings: list[Finding] = []
    if name == "volume" and not any(table.has_volume for table in tables):
        text = (
            "the data have no volume: contracts are held until they have no bars left or may be held no longer, past "
            "their liquid time"
        )
        findings.append(Finding("roll", text, is_warning=True))
    for s in (s for s, reason in choice.reasons.items() if reason == "expired"):
        held = choice.front[:s][choice.front[:s] >= 0]
        old = int(held[-1]) if held.size else -1
        last_day = terms.expiry_day[old] if old >= 0 and terms.is_scheduled[old] else None
        if last_day is not None and activity.session_day[s] <= last_day:
            text = (
                f"{tables[old].contract} has no bars in session {date_of(activity.session_day[s])} although it expires "
                f"on {date_of(last_day)}: it was left there for {tables[int(choice.front[s])].contract}"
            )
            findings.append(Finding("roll", text, 1, is_warning=True))
    capped = sum(reason == "cap" for reason in choice.reasons.values())
    if capped:
        text = (
            f"{capped} of {counted(len(choice.reasons), 'roll')} happened because the contract could be held no longer "
            "(first notice or last trading day), before the rule would have left it"
        )
        findings.append(Finding("roll", text, capped))
    left_out = np.flatnonzero(choice.front < 0)
    if left_out.size:
        text = (
            f"{counted(left_out.size, 'session')} {are(left_out.size)} left out because no front contract is named "
            "there, it has no bars, or it is past its last safe day, the first is "
            f"{date_of(int(activity.session_day[left_out[0]]))}"
        )
        findings.append(Finding("roll", text, int(left_out.size), is_warning=True))
    return findings
