"""Whether prices are where the product has traded: scale errors refused, doubtful levels reported.

The ranges are wide on purpose. They hold the median of any year's closes with room to spare, and are narrower than a
factor of ten, so that prices written ten, a hundred or a thousand times too large or too small fall outside.
"""

import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.bars import E9, PRICE_COLUMNS, BarTable
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.specs import KNOWN_ROOTS, spec_for

Range = tuple[int, float, float]
"""First year, lowest and highest yearly median believed from then on."""

_ES = ((1997, 400, 2_500), (2013, 900, 5_000), (2020, 1_800, 8_000), (2024, 3_000, 25_000))
_NQ = ((1999, 600, 8_000), (2003, 700, 5_000), (2014, 2_200, 14_000), (2020, 5_500, 40_000), (2024, 9_000, 90_000))
_YM = ((2002, 4_000, 20_000), (2013, 9_000, 45_000), (2020, 15_000, 70_000), (2024, 22_000, 200_000))
_RTY = ((1993, 250, 2_200), (2017, 700, 6_000))
_CL = ((1983, 7, 60), (2004, 22, 220), (2015, 12, 220), (2020, 6, 220), (2021, 22, 220))
_GC = ((1975, 80, 900), (2006, 400, 2_800), (2020, 1_000, 7_000), (2025, 1_500, 20_000))
_SI = ((1975, 2.6, 30), (2005, 5, 60), (2020, 10, 150), (2026, 20, 400))
_DAX = ((1990, 900, 9_500), (2013, 4_000, 40_000), (2024, 9_000, 100_000))
_EUR = ((1999, 0.6, 2.4),)
_BTC = ((2017, 2_000, 30_000), (2020, 3_500, 45_000), (2021, 15_000, 140_000), (2022, 10_000, 110_000))
_BITCOIN = (*_BTC, (2024, 25_000, 500_000))

RANGES: dict[str, tuple[Range, ...]] = {
    **dict.fromkeys(("ES", "MES"), _ES),
    **dict.fromkeys(("NQ", "MNQ"), _NQ),
    **dict.fromkeys(("YM", "MYM"), _YM),
    **dict.fromkeys(("RTY", "M2K"), _RTY),
    "EMD": ((2002, 250, 2_400), (2018, 900, 10_000)),
    "NKD": ((1990, 6_000, 55_000), (2024, 18_000, 170_000)),
    "FESX": ((1998, 1_100, 12_000),),
    **dict.fromkeys(("FDAX", "FDXM"), _DAX),
    **dict.fromkeys(("VX", "VXM"), ((2004, 9, 80),)),
    **dict.fromkeys(("CL", "MCL", "BZ"), _CL),
    "NG": ((1990, 0.8, 16),),
    "RB": ((2005, 0.35, 6),),
    "HO": ((1980, 0.25, 1.9), (2004, 0.5, 7)),
    **dict.fromkeys(("GC", "MGC"), _GC),
    **dict.fromkeys(("SI", "SIL"), _SI),
    "HG": ((1988, 0.4, 2.2), (2004, 0.8, 7.5), (2021, 2, 20)),
    "PL": ((1987, 250, 2_600),),
    "PA": ((2009, 150, 1_700), (2018, 550, 5_000)),
    **dict.fromkeys(("ZT", "ZF", "ZN", "TN", "SR3"), ((1982, 60.0, 190.0),)),
    **dict.fromkeys(("ZB", "UB"), ((1977, 40.0, 290.0),)),
    **dict.fromkeys(("6A", "M6A"), ((1987, 0.35, 1.6),)),
    **dict.fromkeys(("6B", "M6B"), ((1975, 0.8, 3.2),)),
    "6C": ((1977, 0.45, 1.6),),
    **dict.fromkeys(("6E", "M6E"), _EUR),
    "6J": ((1985, 0.0035, 0.02),),
    "6M": ((1996, 0.03, 0.2),),
    "6N": ((1997, 0.3, 1.4),),
    "6S": ((1975, 0.3, 2.0),),
    **dict.fromkeys(("BTC", "MBT"), _BITCOIN),
    **dict.fromkeys(("ETH", "MET"), ((2021, 500, 9_000),)),
    "ZC": ((1973, 110, 1_000),),
    **dict.fromkeys(("ZW", "KE"), ((1973, 160, 1_400),)),
    "ZO": ((1990, 75, 740),),
    "ZS": ((1973, 300, 2_200),),
    "ZM": ((1980, 90, 800),),
    "ZL": ((1980, 9, 120),),
    "LE": ((1990, 45, 400),),
    "HE": ((1990, 25, 220),),
    "GF": ((1990, 50, 580),),
}
"""Ranges of yearly medians, by root and era, in the exchange's own price unit (metals: dollars, grains: cents).

Drawn at half to twice the lowest and highest yearly level of the era, as public price histories show them.
"""

ADJUSTED = re.compile(r"unadj|(^|_)raw_?close|is_?roll|roll_?date|adj(ust(ment)?)?_?(factor|offset|ratio)|back_?adj")
"""Column names of files whose prices were shifted or scaled at rolls, but for "Adj Close", which stock exports have."""

MIN_PRICES_IN_32NDS = 12
"""Different prices whose decimals all look like 32nds, from which on this is no chance."""

SCALES = tuple(10**power for power in range(1, 10))


def only_positive(root: str) -> bool:
    """Whether the price of a product is always above zero; unknown products may be spreads and are not judged.

    A delivery of energy can cost more than it is worth: CL settled at -37.63 on 2020-04-20. An index, a metal, a
    currency, a bond or a crop was never given away with money on top.
    """
    return root in KNOWN_ROOTS and spec_for(root).group != "energy"


def plausible(root: str, year: int) -> tuple[float, float] | None:
    """Lowest and highest level believed of a root in a year; None where none is known."""
    eras = [(low, high) for first_year, low, high in RANGES.get(root, ()) if first_year <= year]
    return eras[-1] if eras else None


def adjusted_columns(names: Sequence[str]) -> tuple[Finding, ...]:
    """A warning where columns beside the prices tell that these were adjusted, such as `close_unadjusted`."""
    telling = [name for name in names if ADJUSTED.search(name.lower())]
    if not telling:
        return ()
    text = (
        f"column{'s' if len(telling) > 1 else ''} {', '.join(telling)}: the other prices are adjusted at rolls. No "
        "contract traded at them: fees, slippage and percentages are wrong, and older prices change with every later "
        "roll. Use the unadjusted prices, better those of the contracts themselves"
    )
    return (Finding("adjusted-prices", text, is_warning=True),)


def level_findings(root: str, tables: Sequence[BarTable]) -> list[Finding]:
    """Findings on tables whose level is not one the product has had, at most one.

    Raises:
        DataError: a power of ten brings the level into range, and the prices lie on the tick grid of that scale and
            not of their own: they are written at a wrong scale. Or the decimals of all prices are 32nds.
    """
    doubtful = []
    for table in tables:
        _refuse_32nds(root, table)
        first, last = table.ts_ns[[0, -1]].astype("datetime64[ns]").astype("datetime64[Y]").astype(np.int64)
        starts_ns = np.arange(first, last + 2).astype("datetime64[Y]").astype("datetime64[ns]").astype(np.int64)
        edges = np.searchsorted(table.ts_ns, starts_ns).tolist()
        for year, (start, stop) in enumerate(itertools.pairwise(edges), int(first) + 1970):
            believed = plausible(root, year)
            if start == stop or believed is None:
                continue
            median = float(np.median(table.close_e9[start:stop])) / E9
            if believed[0] <= median <= believed[1]:
                continue
            _refuse_scale(root, table, median, year, believed)
            doubtful.append((table.contract, median, year, believed))
    if not doubtful:
        return []
    contract, median, year, (low, high) = doubtful[0]
    text = (
        f"level: the median close of {contract} in {year} is {median:g}, where {root} was between {low:g} and {high:g}"
        f"{f' (and {len(doubtful) - 1} more such years)' if len(doubtful) > 1 else ''}: adjusted prices, another scale "
        "or another instrument; fees and slippage in ticks would be wrong"
    )
    return [Finding("off-tick", text, len(doubtful), is_warning=True)]


def _refuse_scale(root: str, table: BarTable, median: float, year: int, believed: tuple[float, float]) -> None:
    low, high = believed
    if not any(low <= median / scale <= high or low <= median * scale <= high for scale in SCALES):
        return
    price_e9 = np.unique(np.stack([getattr(table, name) for name in PRICE_COLUMNS]))
    tick_e9 = spec_for(root).tick_e9
    for scale in SCALES:
        if low <= median / scale <= high and _too_large(price_e9, tick_e9, scale):
            what, true = f"{scale} times too large", median / scale
        elif low <= median * scale <= high and _too_small(price_e9, tick_e9, scale):
            what, true = f"{scale} times too small", median * scale
        else:
            continue
        raise DataError(
            f"{table.contract}: prices are {what}: the median close in {year} is {median:g}, where {root} was between "
            f"{low:g} and {high:g} ({true:g} would fit, and its tick grid does too). Correct the prices of the "
            "file, or name what it holds with --symbol."
        )


def _refuse_32nds(root: str, table: BarTable) -> None:
    """Refuse prices of notes and bonds whose decimals are 32nds: 110.165 for 110 and 16.5/32."""
    if root not in KNOWN_ROOTS or spec_for(root).group != "rates" or (E9 // 32) % spec_for(root).tick_e9:
        return
    price_e9 = np.unique(np.stack([getattr(table, name) for name in PRICE_COLUMNS]))
    thousandths, rest = np.divmod(price_e9 % E9, E9 // 1000)
    is_fraction = (rest == 0) & (thousandths // 10 < 32) & np.isin(thousandths % 10, (0, 2, 5, 7))
    if len(price_e9) >= MIN_PRICES_IN_32NDS and is_fraction.all() and (price_e9 % spec_for(root).tick_e9).any():
        shown = price_e9[int(np.argmax(price_e9 % spec_for(root).tick_e9 != 0))]
        raise DataError(
            f"{table.contract}: prices such as {shown / E9:g} are not on the tick of {root}, and the decimals of all "
            f"{len(price_e9)} different prices may be 32nds ({shown / E9:g} for {int(shown // E9)} and "
            f"{int(shown % E9) / 1e7:g}/32). Write prices as decimals."
        )


def _too_large(price_e9: NDArray[np.int64], tick_e9: int, scale: int) -> bool:
    """Whether all prices are whole ticks of a grid that many times coarser than the contract's."""
    return scale * tick_e9 < 2**63 and not (price_e9 % (scale * tick_e9)).any()


def _too_small(price_e9: NDArray[np.int64], tick_e9: int, scale: int) -> bool:
    """Whether prices are off the tick, and on it as soon as they are multiplied.

    Made-up prices with two decimals pass that test for a tick of 0.25 too, as whole numbers; so some must lie between.
    """
    if int(np.abs(price_e9).max()) >= 2**63 // scale:
        return False
    scaled_e9 = price_e9 * scale
    off = (price_e9 % tick_e9 != 0).mean()
    return bool(off > 0.01 and not (scaled_e9 % tick_e9).any() and (scaled_e9 % (4 * tick_e9)).any())
