"""What market data hold, session by session: the account behind `tidewalk inspect`, its picture and its JSON."""

import datetime
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidewalk.data.bars import BarTable, Loaded
from tidewalk.data.calendar.sessions import schedule, scheduled_minutes, session_columns
from tidewalk.data.contracts.roll_rules import activity_of
from tidewalk.data.contracts.rolls import FrontSeries

EPOCH = datetime.date(1970, 1, 1)
MINUTE_NS = 60_000_000_000
LONG_GAP_MINUTES = 30
MAX_GAPS = 10


@dataclass(frozen=True)
class Gap:
    """A hole between two bars of the front contract inside one session."""

    trade_day: int
    contract: str
    from_ns: int
    """UTC moment from which nothing is known: the end of the bar before."""
    to_ns: int
    """UTC start of the bar after."""

    @property
    def minutes(self) -> float:
        """Length of the hole."""
        return (self.to_ns - self.from_ns) / MINUTE_NS


@dataclass(frozen=True)
class Survey:
    """Bars and volume of C contracts in S sessions, and the front contract where there is one.

    Attributes:
        contracts: names, in order of expiry (of time, for a continuous series).
        session_day: int32 [S] trade dates with any bar, days since 1970-01-01.
        bars: int32 [C, S] bars of each contract in each session.
        volume: float64 [C, S].
        front: int32 [S] contract held at the end of the session, -1 for none; all -1 without a front series.
        close_e9: int64 [S] last close of the front contract in the session, 0 where there is none.
        expected_bars: int32 [S] bars of a session traded in every interval; 0 where bars are irregular or the date is
            no scheduled session.
        gaps: longest holes inside sessions, longest first, at most `MAX_GAPS`.
        num_long_gaps: holes longer than `LONG_GAP_MINUTES`.
    """

    contracts: tuple[str, ...]
    session_day: NDArray[np.int32]
    bars: NDArray[np.int32]
    volume: NDArray[np.float64]
    front: NDArray[np.int32]
    close_e9: NDArray[np.int64]
    expected_bars: NDArray[np.int32]
    gaps: tuple[Gap, ...]
    num_long_gaps: int

    @property
    def front_bars(self) -> NDArray[np.int32]:
        """[S] bars of the front contract in each session, 0 where there is none."""
        return np.where(self.front >= 0, self.bars[self.front, np.arange(len(self.front))], 0).astype(np.int32)

    @property
    def front_volume(self) -> NDArray[np.float64]:
        """[S] volume of the front contract in each session, 0 where there is none."""
        return np.where(self.front >= 0, self.volume[self.front, np.arange(len(self.front))], 0.0)

    @property
    def missing_bars(self) -> NDArray[np.int32]:
        """[S] intervals of the session in which the front contract did not trade; 0 where no number is expected."""
        short = self.expected_bars - self.front_bars
        return np.where((self.front >= 0) & (self.expected_bars > 0), np.maximum(short, 0), 0).astype(np.int32)


def survey(loaded: Loaded, rule: str, series: FrontSeries | None) -> Survey:
    """Account of the bars of a symbol.

    Args:
        loaded: bars per contract.
        rule: session rule of the contract.
        series: the front series, None where none could be made.
    """
    columns = tuple(session_columns(table.ts_ns, rule) for table in loaded.tables)
    activity = activity_of(loaded.tables, columns)
    bars = np.zeros(activity.volume.shape, np.int32)
    for i, column in enumerate(columns):
        session = np.searchsorted(activity.session_day, column.trade_day)
        bars[i] = np.bincount(session, minlength=activity.session_day.size)
    names = tuple(table.contract for table in loaded.tables)
    front = np.full(activity.session_day.size, -1, np.int32)
    close_e9 = np.zeros(activity.session_day.size, np.int64)
    if series is not None:
        last = np.flatnonzero(np.diff(series.trade_day, append=series.trade_day[-1] + 1))
        session = np.searchsorted(activity.session_day, series.trade_day[last])
        number = np.array([names.index(name) for name in series.contracts], np.int32)
        front[session] = number[series.contract_id[last]]
        close_e9[session] = series.close_e9[last]
    gaps, num_long_gaps = ((), 0) if series is None else session_gaps(series, rule)
    return Survey(
        contracts=names,
        session_day=activity.session_day,
        bars=bars,
        volume=activity.volume,
        front=front,
        close_e9=close_e9,
        expected_bars=_expected_bars(loaded.tables[0], rule, activity.session_day),
        gaps=gaps,
        num_long_gaps=num_long_gaps,
    )


def _expected_bars(table: BarTable, rule: str, session_day: NDArray[np.int32]) -> NDArray[np.int32]:
    if table.interval_ns is None:
        return np.zeros(session_day.size, np.int32)
    minutes = scheduled_minutes(rule, session_day).astype(np.int64)
    return (-(-minutes * MINUTE_NS // table.interval_ns)).astype(np.int32)


def session_gaps(series: FrontSeries, rule: str) -> tuple[tuple[Gap, ...], int]:
    """The `MAX_GAPS` longest holes of a bar or more inside sessions of the front series, and the number of long ones.

    A pause that the schedule has inside a session is no hole. Irregular bars have none either: when one of them began
    is not known.
    """
    if series.interval_ns is None:
        return (), 0
    hole_ns = series.ts_ns[1:] - series.known_ns[:-1]
    same = (series.trade_day[1:] == series.trade_day[:-1]) & (series.contract_id[1:] == series.contract_id[:-1])
    row = np.flatnonzero(same & (hole_ns >= series.interval_ns))
    # A print of closed hours has nothing to do with the session that it is counted to.
    ends = session_columns(np.concatenate([series.ts_ns[row], series.ts_ns[row + 1]]), rule)
    row = row[~ends.is_outside.reshape(2, -1).any(axis=0)]
    hole_ns = hole_ns[row] - _paused_ns(series, row, rule)
    row, hole_ns = row[hole_ns >= series.interval_ns], hole_ns[hole_ns >= series.interval_ns]
    longest = np.argsort(-hole_ns, kind="stable")[:MAX_GAPS]
    gaps = tuple(
        Gap(
            trade_day=int(series.trade_day[i]),
            contract=series.contracts[int(series.contract_id[i])],
            from_ns=int(series.known_ns[i]),
            to_ns=int(series.ts_ns[i + 1]),
        )
        for i in row[longest].tolist()
    )
    return gaps, int(np.count_nonzero(hole_ns > LONG_GAP_MINUTES * MINUTE_NS))


def _paused_ns(series: FrontSeries, row: NDArray[np.int64], rule: str) -> NDArray[np.int64]:
    """Part of the hole after each row that a scheduled pause accounts for."""
    first, last = (EPOCH + datetime.timedelta(days=int(day)) for day in series.trade_day[[0, -1]])
    planned = schedule(first, last, rule)
    if not len(planned.trade_day):
        return np.zeros(row.size, np.int64)
    at = np.minimum(np.searchsorted(planned.trade_day, series.trade_day[row]), len(planned.trade_day) - 1)
    from_ns = np.maximum(series.known_ns[row], planned.halt_from_ns[at])
    to_ns = np.minimum(series.ts_ns[row + 1], planned.halt_to_ns[at])
    return np.where(planned.trade_day[at] == series.trade_day[row], np.maximum(to_ns - from_ns, 0), 0)
