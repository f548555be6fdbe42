"""The contract that the name of a file says, for files whose rows do not.

FirstRate, Kibot, Norgate, NinjaTrader, Sierra Chart, Barchart and TradingView give one file per contract: `ESH24.txt`,
`ES_H24_1min.txt`, `ES-2024H.csv`, `ES 03-24.Last.txt`, `ESH24-CME.txt`, `esh24_intraday-1min.csv`.
"""

import datetime
import functools
import re
from collections.abc import Iterable
from dataclasses import replace

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.data.checks.quality import Finding
from tidewalk.data.contracts.specs import KNOWN_ROOTS, MONTH_CODES, parse_contract
from tidewalk.data.files.catalog import Catalog
from tidewalk.data.rows import DAY_NS
from tidewalk.data.symbols import EPOCH
from tidewalk.data.text.table import Parsed

_CODES = f"[{MONTH_CODES}]"
_FORMS = (
    r"(?P<letter>{codes})(?P<year>(?:19|20)\d\d|\d\d?)",
    r"(?P<gap>[_ -])(?P<letter>{codes})(?P<year>(?:19|20)\d\d|\d\d)",
    r"[_ -]?(?:19|20)(?P<year>\d\d)-?(?P<letter>{codes})",
    r" (?P<number>0[1-9]|1[0-2])-(?P<year>\d\d)",
)
_BAR_LENGTHS = ("M10", "M12", "M15", "M20", "M30", "H12")
"""What stands behind a gap for a bar length as well: `ES_M15` is June 2015, or fifteen minutes in MetaTrader. It is a
contract where another file of the product says one in the same form."""


def contracts_of(names: Iterable[str], root: str) -> dict[str, str]:
    """Contract codes of one product that file names say, by name; names that say none are left out.

    Args:
        names: names of files, the member of a zip behind "!".
        root: root of the product; the letter case of names does not matter.
    """
    found = {name: code for name in names if (code := _code(name, root)) is not None}
    has_apart = any(is_apart and code not in _BAR_LENGTHS for code, is_apart in found.values())
    return {name: f"{root}{code}" for name, (code, is_apart) in found.items() if has_apart or not is_apart}


def known_contract(name: str) -> str | None:
    """The contract of a known product that a file name says, None where it says none or several."""
    codes = {code for root in KNOWN_ROOTS for code in contracts_of([name], root).values()}
    return codes.pop() if len(codes) == 1 else None


def _code(name: str, root: str) -> tuple[str, bool] | None:
    """Month letter and year, and whether they stand apart from the root."""
    base = re.split(r"[/\\!]", name)[-1]
    codes = {
        (f"{_letter(match)}{match['year'][-2:]}", bool(match.groupdict().get("gap")))
        for pattern in _patterns(root)
        for match in pattern.finditer(base)
    }
    return codes.pop() if len(codes) == 1 else None


def _letter(match: re.Match[str]) -> str:
    letter = match.groupdict().get("letter")
    return letter.upper() if letter else MONTH_CODES[int(match["number"]) - 1]


@functools.cache
def _patterns(root: str) -> tuple[re.Pattern[str], ...]:
    edges = r"(?<![A-Za-z0-9]){root}{form}(?![A-Za-z0-9])"
    forms = [form.replace("{codes}", _CODES) for form in _FORMS]
    return tuple(re.compile(edges.format(root=re.escape(root), form=form), re.IGNORECASE) for form in forms)


def with_contracts(found: Catalog, root: str) -> tuple[Catalog, tuple[Finding, ...]]:
    """Files with the contract of a product that their names say, where their rows do not say of what they are.

    Raises:
        DataError: such a file could not be understood, so that a contract would be missing.
    """
    nameless = [header.source.name for header in found.tables if not header.has_symbols]
    codes = contracts_of([*nameless, *found.unreadable], root)
    for name in sorted(found.unreadable.keys() & codes.keys()):
        raise found.unreadable[name]
    if not codes:
        return found, ()
    tables = [replace(header, contract=codes.get(header.source.name)) for header in found.tables]
    name = min(codes)
    text = (
        f"no symbol column: the contract of {counted(len(codes), 'file')} is taken from the file "
        f"name, such as {codes[name]} from {name}"
    )
    return replace(found, tables=tuple(tables)), (Finding("symbol", text, len(codes)),)


def within_life(table: Parsed) -> Parsed:
    """The table, if it has no rows from after the delivery month of the contract that its name says.

    Raises:
        DataError: it has.
    """
    contract = table.header.contract
    if contract is None or not len(table.rows.stamp_ns):
        return table
    last = EPOCH + datetime.timedelta(days=int(table.rows.stamp_ns.max() // DAY_NS))
    month = parse_contract(contract, last)
    if month is not None and (month.year, month.month) < (last.year, last.month):
        raise DataError(
            f"{table.header.source.name}: its name says {contract}, and it has rows of {last}, after that contract's "
            "delivery month. Correct the name, or take the contract out of it if it is a continuous series."
        )
    return table
