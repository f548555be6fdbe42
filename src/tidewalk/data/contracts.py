"""Contract facts: tick, multiplier, fees, delivery months, codes and scheduled expiries of the futures known by name.

Prices are integers in 1e-9 units throughout, so a tick is an exact integer and a price is on the grid when
`price_e9 % tick_e9 == 0`; no float is involved.
"""

import dataclasses
import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tidewalk.core.errors import ConfigError, did_you_mean
from tidewalk.data.sessions import nth_weekday, us_market_holidays

MONTH_CODES = "FGHJKMNQUVXZ"
"""Delivery month letters, January to December."""

_ALL_MONTHS = MONTH_CODES
_QUARTERS = "HMUZ"
_EQUITY_INDEX = ("ES", "NQ", "RTY", "YM", "EMD", "MES", "MNQ", "M2K", "MYM")
_OUTRIGHT = re.compile(rf"([A-Z0-9]{{1,4}}?)([{MONTH_CODES}])(\d{{1,2}}|\d{{4}})")
_NANO = 1_000_000_000


@dataclass(frozen=True)
class ContractSpec:
    """What one contract of a root is worth, costs and follows."""

    root: str
    exchange: str
    currency: str
    multiplier: float
    """Money per contract for a price change of 1.0."""
    tick_e9: int
    """Smallest price step of an outright, in 1e-9 units."""
    commission_usd: float
    """Broker, exchange and regulator fees per contract and side."""
    months: str
    """Delivery month letters that trade, e.g. "HMUZ"; empty when not known."""
    sessions: str
    """Session rule, one of `tidewalk.data.sessions.RULES`."""

    @property
    def tick_value_usd(self) -> float:
        """Money per contract for one tick."""
        return float(Fraction(self.multiplier) * self.tick_e9 / _NANO)


def _spec(
    root: str, exchange: str, multiplier: float, tick_e9: int, commission_usd: float, months: str
) -> ContractSpec:
    # Early closes on holidays are known for the equity-index group; the other groups keep other hours.
    sessions = "cme-globex" if root in _EQUITY_INDEX else "cme-globex-regular"
    return ContractSpec(root, exchange, "USD", multiplier, tick_e9, commission_usd, months, sessions)


# Multipliers and ticks: CME Group contract specifications, as also listed in QuantConnect LEAN's symbol properties.
# Fees per side: retail broker + exchange + NFA. 2.25 (E-mini equity) and 0.62 (micros) are today's usual totals;
# 2.47 is LEAN's fallback for an Interactive Brokers account (0.85 + 1.60 + 0.02); bitcoin 5 + 6 + 0.02, micro
# bitcoin 2.25 + 2.50 + 0.02.
_SPECS = {
    spec.root: spec
    for spec in (
        _spec("ES", "CME", 50.0, 250_000_000, 2.25, _QUARTERS),
        _spec("NQ", "CME", 20.0, 250_000_000, 2.25, _QUARTERS),
        _spec("RTY", "CME", 50.0, 100_000_000, 2.25, _QUARTERS),
        _spec("YM", "CBOT", 5.0, 1_000_000_000, 2.25, _QUARTERS),
        _spec("EMD", "CME", 100.0, 100_000_000, 2.47, _QUARTERS),
        _spec("MES", "CME", 5.0, 250_000_000, 0.62, _QUARTERS),
        _spec("MNQ", "CME", 2.0, 250_000_000, 0.62, _QUARTERS),
        _spec("M2K", "CME", 5.0, 100_000_000, 0.62, _QUARTERS),
        _spec("MYM", "CBOT", 0.5, 1_000_000_000, 0.62, _QUARTERS),
        _spec("CL", "NYMEX", 1_000.0, 10_000_000, 2.47, _ALL_MONTHS),
        _spec("MCL", "NYMEX", 100.0, 10_000_000, 0.62, _ALL_MONTHS),
        _spec("NG", "NYMEX", 10_000.0, 1_000_000, 2.47, _ALL_MONTHS),
        _spec("RB", "NYMEX", 42_000.0, 100_000, 2.47, _ALL_MONTHS),
        _spec("HO", "NYMEX", 42_000.0, 100_000, 2.47, _ALL_MONTHS),
        _spec("GC", "COMEX", 100.0, 100_000_000, 2.47, "GJMQVZ"),
        _spec("MGC", "COMEX", 10.0, 100_000_000, 0.62, "GJMQVZ"),
        _spec("SI", "COMEX", 5_000.0, 5_000_000, 2.47, "HKNUZ"),
        _spec("SIL", "COMEX", 1_000.0, 5_000_000, 0.62, "HKNUZ"),
        _spec("HG", "COMEX", 25_000.0, 500_000, 2.47, "HKNUZ"),
        _spec("ZT", "CBOT", 2_000.0, 3_906_250, 2.47, _QUARTERS),  # 1/256
        _spec("ZF", "CBOT", 1_000.0, 7_812_500, 2.47, _QUARTERS),  # 1/128
        _spec("ZN", "CBOT", 1_000.0, 15_625_000, 2.47, _QUARTERS),  # 1/64
        _spec("TN", "CBOT", 1_000.0, 15_625_000, 2.47, _QUARTERS),
        _spec("ZB", "CBOT", 1_000.0, 31_250_000, 2.47, _QUARTERS),  # 1/32
        _spec("UB", "CBOT", 1_000.0, 31_250_000, 2.47, _QUARTERS),
        _spec("6A", "CME", 100_000.0, 50_000, 2.47, _QUARTERS),
        _spec("6B", "CME", 62_500.0, 100_000, 2.47, _QUARTERS),
        _spec("6C", "CME", 100_000.0, 50_000, 2.47, _QUARTERS),
        _spec("6E", "CME", 125_000.0, 50_000, 2.47, _QUARTERS),  # 0.0001 before 2016
        _spec("6J", "CME", 12_500_000.0, 500, 2.47, _QUARTERS),
        _spec("M6E", "CME", 12_500.0, 100_000, 0.62, _QUARTERS),
        _spec("BTC", "CME", 5.0, 5_000_000_000, 11.02, _ALL_MONTHS),
        _spec("MBT", "CME", 0.1, 5_000_000_000, 4.77, _ALL_MONTHS),
    )
}

KNOWN_ROOTS = tuple(_SPECS)
"""Roots whose tick, multiplier and fees need not be given."""


def spec_for(
    root: str, *, tick: float | None = None, multiplier: float | None = None, commission_usd: float | None = None
) -> ContractSpec:
    """Specification of a root: the built-in values with the given ones put over them.

    Args:
        root: product code such as "ES".
        tick: smallest price step in price units; must be a whole number of 1e-9.
        multiplier: money per contract for a price change of 1.0.
        commission_usd: fees per contract and side.

    Raises:
        ConfigError: unknown root without both `tick` and `multiplier`, or a value that is not usable. An unknown root
            with both is given in USD, no commission unless one is named, and sessions of UTC days.
    """
    changes: dict[str, float | int] = {}
    if tick is not None:
        changes["tick_e9"] = _tick_e9(tick)
    if multiplier is not None:
        changes["multiplier"] = _checked("--multiplier", multiplier, above_zero=True)
    if commission_usd is not None:
        changes["commission_usd"] = _checked("--commission-usd", commission_usd, above_zero=False)
    base = _SPECS.get(root)
    if base is None and (tick is None or multiplier is None):
        raise ConfigError(
            f"contract root {root!r} is not known{did_you_mean(root, KNOWN_ROOTS)}: give --tick and --multiplier, "
            f"or use one of {', '.join(KNOWN_ROOTS)}"
        )
    if base is None:
        base = ContractSpec(root, "", "USD", 0.0, 0, 0.0, "", "utc-day")
    return dataclasses.replace(base, **changes)


def _checked(flag: str, value: float, *, above_zero: bool) -> float:
    if not math.isfinite(value) or value < 0.0 or (above_zero and value == 0.0):
        wanted = "above 0" if above_zero else "of at least 0"
        raise ConfigError(f"{flag} {value} is not usable: it must be a finite number {wanted}")
    return float(value)


def _tick_e9(tick: float) -> int:
    exact = _checked("--tick", tick, above_zero=True) * _NANO
    tick_e9 = round(exact)
    # A decimal fraction is not exact in binary; anything within a millionth of a nano unit is the decimal meant.
    if tick_e9 < 1 or abs(exact - tick_e9) > max(1e-6, 1e-12 * exact):
        raise ConfigError(
            f"--tick {tick} is not usable: prices are kept in 1e-9 units, so it must be a multiple of 1e-9"
        )
    return tick_e9


def root_of(symbol: str) -> str:
    """Root of any symbol form: "ES.FUT", "ES.c.0", "ESZ4", "ESZ24" and "ES" all give "ES".

    The letter case is kept: an unknown spelling is the caller's to report.
    """
    head = symbol.strip().partition(".")[0]
    if head in _SPECS:
        return head
    outright = _OUTRIGHT.fullmatch(head)
    return outright.group(1) if outright else head


@dataclass(frozen=True, order=True)
class ContractMonth:
    """An outright contract: root and delivery month (1 to 12)."""

    root: str
    year: int
    month: int


def parse_contract(code: str, on: datetime.date) -> ContractMonth | None:
    """Delivery month named by an outright code such as "ESZ4"; None for spreads, combinations, options, bare roots.

    The exchange writes one digit of the year, so "ESZ4" is December 2014 as well as December 2024. One digit means the
    nearest such year whose delivery month is not before the month before `on` (a contract just expired is still meant);
    two digits mean the year nearest to `on`.

    Args:
        code: raw symbol of the source.
        on: a day on which the code was in use, e.g. that of its first bar.
    """
    outright = _OUTRIGHT.fullmatch(code)
    if outright is None or code in _SPECS:
        return None
    root, letter, digits = outright.groups()
    month = MONTH_CODES.index(letter) + 1
    if len(digits) == 4:
        year = int(digits)
    elif len(digits) == 2:
        year = on.year - 50 + (int(digits) - (on.year - 50)) % 100
    else:
        first_year = on.year if month >= on.month - 1 else on.year + 1
        if on.month == 1 and month == 12:
            first_year = on.year - 1
        year = first_year + (int(digits) - first_year) % 10
    return ContractMonth(root, year, month)


def expiry_date(contract: ContractMonth) -> datetime.date:
    """Scheduled last trading day by the exchange's rule for the root.

    Rules (CME Group rulebook; dates computed with the holidays of `us_market_holidays`, so a date may be a day off
    where an exchange keeps other holidays):

    * equity index: third Friday, or the business day before it;
    * currencies: second business day before the third Wednesday (6C: first);
    * bitcoin: last Friday of the month;
    * CL: third business day before the 25th of the month before delivery (MCL: fourth);
    * NG: third last business day of the month before delivery (RB, HO: last);
    * metals: third last business day of the delivery month;
    * ZN, TN, ZB, UB: seventh business day before the last one of the delivery month (ZF, ZT: the last one);
    * any other root: last business day of the delivery month, as a guess.

    Physically delivered contracts (metals, notes, bonds) can be assigned from the last business day of the month
    *before* delivery: leave them earlier.
    """
    rule = _EXPIRY_RULES.get(contract.root, _last_business_day)
    return rule(contract.year, contract.month)


def _is_business_day(day: datetime.date) -> bool:
    return day.weekday() < 5 and day not in us_market_holidays(day.year)


def _back(day: datetime.date, business_days: int) -> datetime.date:
    """The day that many business days before `day`; zero gives `day` or the business day before it."""
    step = datetime.timedelta(days=1)
    while not _is_business_day(day):
        day -= step
    for _ in range(business_days):
        day -= step
        while not _is_business_day(day):
            day -= step
    return day


def _month_end(year: int, month: int) -> datetime.date:
    return datetime.date(year + month // 12, month % 12 + 1, 1) - datetime.timedelta(days=1)


def _month_before(year: int, month: int) -> tuple[int, int]:
    return (year, month - 1) if month > 1 else (year - 1, 12)


def _third_friday(year: int, month: int) -> datetime.date:
    return _back(nth_weekday(year, month, 4, 3), 0)


def _last_friday(year: int, month: int) -> datetime.date:
    end = _month_end(year, month)
    friday = end - datetime.timedelta(days=(end.weekday() - 4) % 7)
    return _back(friday, 0)


def _last_business_day(year: int, month: int) -> datetime.date:
    return _back(_month_end(year, month), 0)


def _before_third_wednesday(business_days: int) -> Callable[[int, int], datetime.date]:
    return lambda year, month: _back(nth_weekday(year, month, 2, 3), business_days)


def _before_month_end(business_days: int) -> Callable[[int, int], datetime.date]:
    return lambda year, month: _back(_month_end(year, month), business_days)


def _before_previous_month_end(business_days: int) -> Callable[[int, int], datetime.date]:
    return lambda year, month: _back(_month_end(*_month_before(year, month)), business_days)


def _before_25th_of_previous_month(business_days: int) -> Callable[[int, int], datetime.date]:
    # `_back` first moves a 25th that is no business day to the one before it, as the rulebook does.
    return lambda year, month: _back(datetime.date(*_month_before(year, month), 25), business_days)


_EXPIRY_RULES: dict[str, Callable[[int, int], datetime.date]] = {
    **dict.fromkeys(_EQUITY_INDEX, _third_friday),
    **dict.fromkeys(("6A", "6B", "6E", "6J", "M6E"), _before_third_wednesday(2)),
    "6C": _before_third_wednesday(1),
    **dict.fromkeys(("BTC", "MBT"), _last_friday),
    "CL": _before_25th_of_previous_month(3),
    "MCL": _before_25th_of_previous_month(4),
    "NG": _before_previous_month_end(2),
    **dict.fromkeys(("RB", "HO"), _before_previous_month_end(0)),
    **dict.fromkeys(("GC", "MGC", "SI", "SIL", "HG"), _before_month_end(2)),
    **dict.fromkeys(("ZN", "TN", "ZB", "UB"), _before_month_end(7)),
    **dict.fromkeys(("ZF", "ZT"), _before_month_end(0)),
}
