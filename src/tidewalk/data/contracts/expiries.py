"""Last trading days and last safe days of contracts, by the rules of the exchanges.

Dates are computed with the holidays of `us_market_holidays`; where an exchange keeps other holidays a date may be a day
off. A definition record of the vendor is better than a rule and goes before it.

Sources: CME Group rulebook (chapters of the products, "termination of trading" and "delivery procedures") and product
calendars; Cboe Futures Exchange rule 1202 (VX); Eurex contract specifications. The rules of ES and GC are checked in
the tests against the calendars of QuantConnect LEAN.
"""

import datetime
from collections.abc import Callable

from tidewalk.data.calendar.days import ONE_DAY, nth_weekday, us_market_holidays
from tidewalk.data.contracts.specs import ContractMonth

_DateRule = Callable[[int, int], datetime.date]

_CASH_INDEX = ("ES", "NQ", "RTY", "YM", "EMD", "NKD", "MES", "MNQ", "M2K", "MYM", "FESX", "FDAX", "FDXM")
_METALS = ("GC", "MGC", "SI", "SIL", "HG", "PL", "PA")
_RATES = ("ZT", "ZF", "ZN", "TN", "ZB", "UB")
_GRAINS = ("ZC", "ZW", "KE", "ZO", "ZS", "ZM", "ZL")
_FX = ("6A", "6B", "6C", "6E", "6J", "6M", "6N", "6S", "M6A", "M6B", "M6E")


def expiry_date(contract: ContractMonth) -> datetime.date:
    """Scheduled last trading day by the exchange's rule for the root.

    Rules, each moved to the business day before where it names a holiday:

    * equity index: third Friday (NKD: the day before the second Friday);
    * currencies: second business day before the third Wednesday (6C: first);
    * bitcoin, ether: last Friday of the month;
    * CL: third business day before the 25th of the month before delivery (MCL: fourth);
    * NG: third last business day of the month before delivery (RB, HO: last); BZ: last of the second month before;
    * metals: third last business day of the delivery month;
    * ZN, TN, ZB, UB: seventh business day before the last one of the delivery month (ZF, ZT: the last one);
    * SR3: the business day before the third Wednesday of the third month after the one in its name;
    * grains: the business day before the 15th of the delivery month;
    * HE: tenth business day of the delivery month; LE: its last one; GF: its last Thursday (the one before where a
      holiday falls in that week's Thursday or Friday);
    * VX: the day before the Wednesday that lies 30 days before the third Friday of the month after;
    * any other root: last business day of the delivery month, as a guess.
    """
    rule = _EXPIRY_RULES.get(contract.root, _last_business_day)
    return rule(contract.year, contract.month)


def has_expiry_rule(root: str) -> bool:
    """Whether the last trading day of a root is known by rule; elsewhere `expiry_date` guesses."""
    return root in _EXPIRY_RULES


def first_notice_date(contract: ContractMonth) -> datetime.date | None:
    """First day on which a long position may be assigned a delivery *while the contract still trades*.

    Metals, notes, bonds and grains: last business day of the month before delivery; LE: first Monday of the delivery
    month. None for contracts that settle in cash or deliver after their last trading day, and for roots not known.
    """
    rule = _NOTICE_RULES.get(contract.root)
    return rule(contract.year, contract.month) if rule else None


def last_safe_date(contract: ContractMonth, last_trade: datetime.date | None = None) -> datetime.date | None:
    """Last trade date over whose close the contract may be held without a delivery; None where no rule is known.

    * Settled in cash: the last trading day itself.
    * Delivered after the last trading day (energy, currencies): the business day before it, so that the position is
      left in a session in which the contract still trades.
    * Delivered before (metals, notes, bonds, grains, LE): the second business day before first notice day, because
      deliveries are assigned from the positions that stand at the close of the business day before notice.

    Args:
        contract: the contract.
        last_trade: last trading day as the vendor's definition gives it; goes before the rule of the root.
    """
    root = contract.root
    if root not in _EXPIRY_RULES:
        return last_trade
    last = last_trade or expiry_date(contract)
    if root in _DELIVERED:
        last = _back(last, 1)
    notice = first_notice_date(contract)
    return last if notice is None else min(last, _back(notice, 2))


def _is_business_day(day: datetime.date) -> bool:
    return day.weekday() < 5 and day not in us_market_holidays(day.year)


def _back(day: datetime.date, business_days: int) -> datetime.date:
    """The day that many business days before `day`; zero gives `day` or the business day before it."""
    while not _is_business_day(day):
        day -= ONE_DAY
    for _ in range(business_days):
        day -= ONE_DAY
        while not _is_business_day(day):
            day -= ONE_DAY
    return day


def _month_plus(year: int, month: int, months: int) -> tuple[int, int]:
    years, index = divmod(year * 12 + month - 1 + months, 12)
    return years, index + 1


def _month_end(year: int, month: int) -> datetime.date:
    return datetime.date(*_month_plus(year, month, 1), 1) - ONE_DAY


def _third_friday(year: int, month: int) -> datetime.date:
    return _back(nth_weekday(year, month, 4, 3), 0)


def _before_second_friday(year: int, month: int) -> datetime.date:
    return _back(nth_weekday(year, month, 4, 2) - ONE_DAY, 0)


def _last_friday(year: int, month: int) -> datetime.date:
    end = _month_end(year, month)
    return _back(end - datetime.timedelta(days=(end.weekday() - 4) % 7), 0)


def _last_free_thursday(year: int, month: int) -> datetime.date:
    end = _month_end(year, month)
    day = end - datetime.timedelta(days=(end.weekday() - 3) % 7)
    while not (_is_business_day(day) and _is_business_day(day + ONE_DAY)):
        day -= datetime.timedelta(days=7)
    return day


def _last_business_day(year: int, month: int) -> datetime.date:
    return _back(_month_end(year, month), 0)


def _tenth_business_day(year: int, month: int) -> datetime.date:
    day, count = datetime.date(year, month, 1), 0
    while count < 10:
        count += _is_business_day(day)
        day += ONE_DAY
    return day - ONE_DAY


def _first_monday(year: int, month: int) -> datetime.date:
    return _back(nth_weekday(year, month, 0, 1), 0)


def _before_15th(year: int, month: int) -> datetime.date:
    return _back(datetime.date(year, month, 14), 0)


def _before_expiry_of_next_options(year: int, month: int) -> datetime.date:
    # VX settles on the opening values of that Wednesday; if it or the Friday is a holiday, all moves a day earlier.
    options = nth_weekday(*_month_plus(year, month, 1), 4, 3)
    return _back(_back(options, 0) - datetime.timedelta(days=31), 0)


def _before_third_wednesday(business_days: int, months_after: int = 0) -> _DateRule:
    return lambda year, month: _back(nth_weekday(*_month_plus(year, month, months_after), 2, 3), business_days)


def _before_month_end(business_days: int, months_before: int = 0) -> _DateRule:
    return lambda year, month: _back(_month_end(*_month_plus(year, month, -months_before)), business_days)


def _before_25th_of_previous_month(business_days: int) -> _DateRule:
    # `_back` first moves a 25th that is no business day to the one before it, as the rulebook does.
    return lambda year, month: _back(datetime.date(*_month_plus(year, month, -1), 25), business_days)


_EXPIRY_RULES: dict[str, _DateRule] = {
    **dict.fromkeys(_CASH_INDEX, _third_friday),
    "NKD": _before_second_friday,
    **dict.fromkeys(_FX, _before_third_wednesday(2)),
    "6C": _before_third_wednesday(1),
    **dict.fromkeys(("BTC", "MBT", "ETH", "MET"), _last_friday),
    "CL": _before_25th_of_previous_month(3),
    "MCL": _before_25th_of_previous_month(4),
    "BZ": _before_month_end(0, months_before=2),
    "NG": _before_month_end(2, months_before=1),
    **dict.fromkeys(("RB", "HO"), _before_month_end(0, months_before=1)),
    **dict.fromkeys(_METALS, _before_month_end(2)),
    **dict.fromkeys(_RATES, _before_month_end(7)),
    **dict.fromkeys(("ZF", "ZT"), _before_month_end(0)),
    "SR3": _before_third_wednesday(1, months_after=3),
    **dict.fromkeys(_GRAINS, _before_15th),
    "LE": _before_month_end(0),
    "HE": _tenth_business_day,
    "GF": _last_free_thursday,
    **dict.fromkeys(("VX", "VXM"), _before_expiry_of_next_options),
}

_NOTICE_RULES: dict[str, _DateRule] = {
    **dict.fromkeys((*_METALS, *_RATES, *_GRAINS), _before_month_end(0, months_before=1)),
    "LE": _first_monday,
}

_DELIVERED = frozenset(("CL", "NG", "RB", "HO", *_FX, *_NOTICE_RULES))
"""Roots settled by delivery; MCL, BZ and all others not named here settle in cash."""
