"""Contract facts: tick, multiplier, fees, delivery months and codes of the futures known by name.

Prices are integers in 1e-9 units throughout, so a tick is an exact integer and a price is on the grid when
`price_e9 % tick_e9 == 0`; no float is involved.
"""

import dataclasses
import datetime
import math
import re
from dataclasses import dataclass
from fractions import Fraction

from tidewalk.core.errors import ConfigError, did_you_mean

MONTH_CODES = "FGHJKMNQUVXZ"
"""Delivery month letters, January to December."""

_NANO = 1_000_000_000
_ALL_MONTHS = MONTH_CODES
_QUARTERS = "HMUZ"
_OUTRIGHT = re.compile(rf"([A-Z0-9]{{1,4}}?)([{MONTH_CODES}])(\d{{1,2}}|(?:19|20)\d{{2}})")
CHINESE = "-CN"
_CHINESE = re.compile(r"([A-Za-z]{1,2})(\d{1,2})(0[1-9]|1[0-2])")

_SESSIONS = {
    "equity-index": "cme-equity",
    "rates": "cme-rates",
    "fx": "cme-fx",
    "energy": "nymex-energy",
    "metals": "comex-metals",
    "crypto": "cme-crypto",
    "grains": "cbot-grains",
    "livestock": "utc-day",  # daytime hours, which no midnight cuts
    "volatility": "cme-equity",  # the hours and holidays of the index that it is about
    "eurex-index": "eurex-index",
}
"""Session rule of each product group."""


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
    """Delivery month letters in which positions are usually held, e.g. "HMUZ"; empty when not known."""
    sessions: str
    """Session rule, one of `tidewalk.data.calendar.sessions.RULES`."""
    group: str = ""
    """Product group such as "equity-index"; empty when not known."""

    @property
    def tick_value_usd(self) -> float:
        """Money per contract for one tick."""
        return float(Fraction(self.multiplier) * self.tick_e9 / _NANO)


def _specs(group: str, exchange: str, *rows: tuple[str, float, int, float, str]) -> list[ContractSpec]:
    """Specifications of (root, multiplier, tick_e9, commission, months) in one group and exchange."""
    currency = "EUR" if exchange == "EUREX" else "USD"
    return [
        ContractSpec(root, exchange, currency, multiplier, tick_e9, fee, months, _SESSIONS[group], group)
        for root, multiplier, tick_e9, fee, months in rows
    ]


# Multipliers and ticks: contract specifications of the exchanges, as also listed in QuantConnect LEAN's symbol
# properties (which gives grains and livestock in dollars; the exchange and Databento quote them in cents, as here).
# Fees per side: retail broker + exchange + NFA. 2.25 (E-mini equity) and 0.62 (micros) are today's usual totals;
# 2.47 is LEAN's fallback for an Interactive Brokers account (0.85 + 1.60 + 0.02); bitcoin 5 + 6 + 0.02, micro
# bitcoin 2.25 + 2.50 + 0.02, and the same for ether.
_SPECS = {
    spec.root: spec
    for spec in (
        *_specs(
            "equity-index",
            "CME",
            ("ES", 50.0, 250_000_000, 2.25, _QUARTERS),
            ("NQ", 20.0, 250_000_000, 2.25, _QUARTERS),
            ("RTY", 50.0, 100_000_000, 2.25, _QUARTERS),
            ("EMD", 100.0, 100_000_000, 2.47, _QUARTERS),
            ("NKD", 5.0, 5_000_000_000, 2.47, _QUARTERS),
            ("MES", 5.0, 250_000_000, 0.62, _QUARTERS),
            ("MNQ", 2.0, 250_000_000, 0.62, _QUARTERS),
            ("M2K", 5.0, 100_000_000, 0.62, _QUARTERS),
        ),
        *_specs(
            "equity-index",
            "CBOT",
            ("YM", 5.0, 1_000_000_000, 2.25, _QUARTERS),
            ("MYM", 0.5, 1_000_000_000, 0.62, _QUARTERS),
        ),
        *_specs(
            "energy",
            "NYMEX",
            ("CL", 1_000.0, 10_000_000, 2.47, _ALL_MONTHS),
            ("MCL", 100.0, 10_000_000, 0.62, _ALL_MONTHS),
            ("BZ", 1_000.0, 10_000_000, 2.47, _ALL_MONTHS),
            ("NG", 10_000.0, 1_000_000, 2.47, _ALL_MONTHS),
            ("RB", 42_000.0, 100_000, 2.47, _ALL_MONTHS),
            ("HO", 42_000.0, 100_000, 2.47, _ALL_MONTHS),
        ),
        *_specs(
            "metals",
            "COMEX",
            ("GC", 100.0, 100_000_000, 2.47, "GJMQVZ"),
            ("MGC", 10.0, 100_000_000, 0.62, "GJMQVZ"),
            ("SI", 5_000.0, 5_000_000, 2.47, "HKNUZ"),
            ("SIL", 1_000.0, 5_000_000, 0.62, "HKNUZ"),
            ("HG", 25_000.0, 500_000, 2.47, "HKNUZ"),
        ),
        *_specs(
            "metals",
            "NYMEX",
            ("PL", 50.0, 100_000_000, 2.47, "FJNV"),
            ("PA", 100.0, 500_000_000, 2.47, _QUARTERS),
        ),
        *_specs(
            "rates",
            "CBOT",
            ("ZT", 2_000.0, 3_906_250, 2.47, _QUARTERS),  # 1/256
            ("ZF", 1_000.0, 7_812_500, 2.47, _QUARTERS),  # 1/128
            ("ZN", 1_000.0, 15_625_000, 2.47, _QUARTERS),  # 1/64
            ("TN", 1_000.0, 15_625_000, 2.47, _QUARTERS),
            ("ZB", 1_000.0, 31_250_000, 2.47, _QUARTERS),  # 1/32
            ("UB", 1_000.0, 31_250_000, 2.47, _QUARTERS),
        ),
        # Half of the tick of the deferred months; the nearest contract moves in these steps.
        *_specs("rates", "CME", ("SR3", 2_500.0, 2_500_000, 2.47, _QUARTERS)),
        *_specs(
            "fx",
            "CME",
            ("6A", 100_000.0, 50_000, 2.47, _QUARTERS),
            ("6B", 62_500.0, 100_000, 2.47, _QUARTERS),
            ("6C", 100_000.0, 50_000, 2.47, _QUARTERS),
            ("6E", 125_000.0, 50_000, 2.47, _QUARTERS),  # 0.0001 before 2016
            ("6J", 12_500_000.0, 500, 2.47, _QUARTERS),
            ("6M", 500_000.0, 10_000, 2.47, _QUARTERS),
            ("6N", 100_000.0, 50_000, 2.47, _QUARTERS),
            ("6S", 125_000.0, 50_000, 2.47, _QUARTERS),
            ("M6A", 10_000.0, 100_000, 0.62, _QUARTERS),
            ("M6B", 6_250.0, 100_000, 0.62, _QUARTERS),
            ("M6E", 12_500.0, 100_000, 0.62, _QUARTERS),
        ),
        *_specs(
            "crypto",
            "CME",
            ("BTC", 5.0, 5_000_000_000, 11.02, _ALL_MONTHS),
            ("MBT", 0.1, 5_000_000_000, 4.77, _ALL_MONTHS),
            ("ETH", 50.0, 500_000_000, 11.02, _ALL_MONTHS),
            ("MET", 0.1, 500_000_000, 4.77, _ALL_MONTHS),
        ),
        *_specs(
            "grains",
            "CBOT",
            ("ZC", 50.0, 250_000_000, 2.47, "HKNUZ"),
            ("ZW", 50.0, 250_000_000, 2.47, "HKNUZ"),
            ("KE", 50.0, 250_000_000, 2.47, "HKNUZ"),
            ("ZO", 50.0, 250_000_000, 2.47, "HKNUZ"),
            ("ZS", 50.0, 250_000_000, 2.47, "FHKNX"),  # August and September trade thinly
            ("ZM", 100.0, 100_000_000, 2.47, "FHKNZ"),
            ("ZL", 600.0, 10_000_000, 2.47, "FHKNZ"),
        ),
        *_specs(
            "livestock",
            "CME",
            ("LE", 400.0, 25_000_000, 2.47, "GJMQVZ"),
            ("HE", 400.0, 25_000_000, 2.47, "GJMNQVZ"),
            ("GF", 500.0, 25_000_000, 2.47, "FHJKQUVX"),
        ),
        *_specs(
            "volatility",
            "CFE",
            ("VX", 1_000.0, 50_000_000, 2.47, _ALL_MONTHS),
            ("VXM", 100.0, 10_000_000, 0.62, _ALL_MONTHS),
        ),
        *_specs(
            "eurex-index",
            "EUREX",
            ("FESX", 10.0, 1_000_000_000, 2.47, _QUARTERS),
            ("FDAX", 25.0, 1_000_000_000, 2.47, _QUARTERS),  # 0.5 in older data: give --tick 0.5
            ("FDXM", 5.0, 1_000_000_000, 2.47, _QUARTERS),
        ),
    )
}

KNOWN_ROOTS = tuple(_SPECS)
"""Roots whose tick, multiplier and fees need not be given."""

LONG_LISTED = frozenset({"CL", "NG"})
"""Roots with contracts more than ten years ahead, whose one-digit years do not name one contract."""


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
        hint = "" if root.endswith(CHINESE) else did_you_mean(root, KNOWN_ROOTS)
        raise ConfigError(
            f"contract root {root!r} is not known{hint}: give --tick and --multiplier, "
            f"or use one of {', '.join(KNOWN_ROOTS)}"
        )
    if base is None:
        base = ContractSpec(root, "", "USD", 0.0, 0, 0.0, "", "utc-day")
    return dataclasses.replace(base, **changes)


def session_rule(root: str) -> str:
    """Session rule of a root; UTC days where the root is not known."""
    return _SPECS[root].sessions if root in _SPECS else "utc-day"


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
    """Root of any symbol form: "ES.FUT", "ES.c.0", "ESZ4", "ESZ24" and "ES" all give "ES", "FU2305" gives "FU".

    A Chinese root that is a known one elsewhere is marked, for it is another product: "RB2305" (steel) gives "RB-CN",
    since "RB" is gasoline. The letter case is kept: an unknown spelling is the caller's to report.
    """
    head = symbol.strip().partition(".")[0]
    if head in _SPECS:
        return head
    outright = _outright(head)
    if outright is None:
        return head
    root = outright.group(1)
    return f"{root}{CHINESE}" if root in _SPECS and outright.re is _CHINESE else root


def _outright(code: str) -> re.Match[str] | None:
    """Match of an outright code: root, then month letter and year, or (Chinese exchanges) year and month in digits.

    "RU2009" fits both patterns: roots of one letter went with the trading pits, so the digits are taken as a month.
    """
    letter_form = _OUTRIGHT.fullmatch(code)
    digit_form = _CHINESE.fullmatch(code)
    if letter_form and digit_form and len(letter_form.group(1)) == 1:
        return digit_form if len(letter_form.group(3)) == 4 else letter_form
    return letter_form or digit_form


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
    two digits mean the year nearest to `on`. Chinese exchanges write the month in digits: "FU2305" and "MA305" are May
    2023.

    Args:
        code: raw symbol of the source.
        on: a day on which the code was in use, best its last: a contract does not trade after its delivery month.
    """
    outright = None if code in _SPECS else _outright(code)
    if outright is None:
        return None
    root, second, third = outright.groups()
    by_letter = second in MONTH_CODES
    month = MONTH_CODES.index(second) + 1 if by_letter else int(third)
    digits = third if by_letter else second
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
