"""Header of a DBN file: the request it answers and the symbols of its instruments, every count and length checked.

Layout after the DBN specification, versions 1 to 3: "DBN", version, length of the rest, then 100 bytes of fixed fields
and four lists (symbols, partial, not found, mappings). The vendor's own reader is not used on bytes that may be
hostile: it allocates what a count asks for.
"""

import datetime
import struct
from dataclasses import dataclass

from tidewalk.core.errors import DataError
from tidewalk.data.files.source import Source, read_start
from tidewalk.data.rows import LabelSpan

NEWEST_VERSION = 3
MAX_HEADER_BYTES = 1 << 26
END_OF_TIME_NS = 2**62  # year 2116; anything later is a sentinel or damage
LAST_DAY = 47_482  # 2100-01-01, the end of a mapping without end
OLD_SYMBOL_BYTES = 22
FIXED_BYTES = 100
SCHEMAS = (
    *("mbo", "mbp-1", "mbp-10", "tbbo", "trades", "ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d", "definition"),
    *("statistics", "status", "imbalance", "ohlcv-eod", "cmbp-1", "cbbo-1s", "cbbo-1m", "tcbbo", "bbo-1s", "bbo-1m"),
)
"""Schemas in the order of their codes."""

STYPES = (
    *("instrument_id", "raw_symbol", "smart", "continuous", "parent", "nasdaq_symbol", "cms_symbol", "isin"),
    *("us_code", "bbg_comp_id", "bbg_comp_ticker", "figi", "figi_ticker", "listing_id", "issuer_id", "security_id"),
)
"""Kinds of symbols in the order of their codes."""


@dataclass(frozen=True, order=True)
class Mapping:
    """`symbol` is instrument `instrument_id` on the UTC days [first_day, end_day), days since 1970-01-01."""

    symbol: str
    first_day: int
    end_day: int
    instrument_id: int


@dataclass(frozen=True)
class DbnHeader:
    """Metadata of a DBN file, the mappings in a fixed order.

    Attributes:
        version: DBN version of the file, 1 to 3.
        schema: "ohlcv-1m" and so on; None for a live recording of mixed schemas.
        stype_in: symbology of the request ("parent", "raw_symbol", "continuous"), None when unknown.
        limit: most records the request allowed, None when unlimited.
        ts_out: whether each record carries 8 more bytes, the time it was sent.
        symbols: symbols of the request.
        partial: symbols that resolved for part of the time.
        not_found: symbols that resolved at no time.
        mappings: symbol mappings, sorted.
        size: bytes of the header; records start there.
        end_ns: end of the request, None when open.
        start_ns: start of the request, None when open.
        dataset: code of the vendor's dataset ("GLBX.MDP3").
        schemas: schemas whose records a live recording of mixed schemas holds; empty in other files.
        is_mixed: whether the file is such a recording, of which this header describes the records of `schema` only.
    """

    version: int
    schema: str | None
    stype_in: str | None
    limit: int | None
    ts_out: bool
    symbols: tuple[str, ...]
    partial: tuple[str, ...]
    not_found: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    size: int
    end_ns: int | None
    start_ns: int | None = None
    dataset: str = ""
    schemas: tuple[str, ...] = ()
    is_mixed: bool = False


def parse_header(source: Source) -> DbnHeader:
    """The header as it stands in the file.

    Raises:
        DataError: newer version, or damaged or cut-off metadata.
    """
    prefix = read_start(source, 8)
    if prefix[:3] != b"DBN":
        raise DataError(f"{source.name}: no DBN header. Download a whole DBN file.")
    version = prefix[3] if len(prefix) > 3 else 0
    if not 1 <= version <= NEWEST_VERSION:
        raise DataError(
            f"{source.name}: DBN version {version}; versions 1 to {NEWEST_VERSION} can be read. Ask for an older "
            "version when downloading, or update tidewalk."
        )
    length = struct.unpack("<I", prefix[4:8])[0] if len(prefix) == 8 else MAX_HEADER_BYTES
    start = read_start(source, 8 + length) if length < MAX_HEADER_BYTES else b""
    if len(start) < 8 + length:
        raise DataError(f"{source.name}: the file ends inside its DBN header, so it was cut off. Download it again.")
    try:
        return _parse(_Cursor(start), version, 8 + length)
    except (ValueError, IndexError) as error:
        raise DataError(f"{source.name}: damaged DBN header ({error}). Download the file again.") from error


class _Cursor:
    """Reads the lists of a header one after the other, never beyond its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 8 + FIXED_BYTES
        self._days: dict[int, int] = {}
        self.symbol_bytes = OLD_SYMBOL_BYTES

    def fixed(self, form: str, offset: int) -> int:
        """A number of the fixed part, `offset` bytes after its start."""
        if len(self._raw) < 8 + FIXED_BYTES:
            raise ValueError(f"{len(self._raw) - 8} bytes, at least {FIXED_BYTES} are needed")
        return struct.unpack_from(form, self._raw, 8 + offset)[0]

    def dataset(self) -> str:
        """Name of the dataset."""
        return _text(self._raw[8:24])

    def number(self) -> int:
        """The next unsigned integer of 32 bits."""
        self._need(4)
        self._at += 4
        return struct.unpack_from("<I", self._raw, self._at - 4)[0]

    def symbol(self) -> str:
        """The next symbol."""
        self._need(self.symbol_bytes)
        self._at += self.symbol_bytes
        return _text(self._raw[self._at - self.symbol_bytes : self._at])

    def symbols(self) -> tuple[str, ...]:
        """The next list of symbols."""
        return tuple(self.symbol() for _ in range(self.count(self.symbol_bytes)))

    def count(self, size: int) -> int:
        """Length of the next list, whose items have at least `size` bytes."""
        count = self.number()
        self._need(count * size)
        return count

    def day(self) -> int:
        """The next date, written as the number YYYYMMDD, in days since 1970-01-01."""
        date = self.number()
        if date not in self._days:
            day = datetime.date(date // 10_000, date // 100 % 100, date % 100)
            self._days[date] = max(day.toordinal() - datetime.date(1970, 1, 1).toordinal(), 0)
        return self._days[date]

    def _need(self, size: int) -> None:
        if self._at + size > len(self._raw):
            raise ValueError(f"a list of {size:,} bytes at byte {self._at:,} goes beyond the end of the header")


def _parse(cursor: _Cursor, version: int, size: int) -> DbnHeader:
    is_old = version == 1
    schema, start, end, limit = cursor.fixed("<H", 16), *(cursor.fixed("<Q", at) for at in (18, 26, 34))
    stype_in, _, ts_out = (cursor.fixed("B", (50 if is_old else 42) + place) for place in range(3))
    if not is_old:
        cursor.symbol_bytes = cursor.fixed("<H", 45)
    if not 2 <= cursor.symbol_bytes <= 1024:
        raise ValueError(f"symbols of {cursor.symbol_bytes} bytes")
    if cursor.number():
        raise ValueError("an embedded schema definition")
    symbols, partial, not_found = cursor.symbols(), cursor.symbols(), cursor.symbols()
    kind = _coded(STYPES, stype_in, 0xFF, "kind of symbols")
    return DbnHeader(
        version=version,
        schema=_coded(SCHEMAS, schema, 0xFFFF, "schema"),
        stype_in=kind,
        limit=limit or None,
        ts_out=bool(ts_out),
        symbols=symbols,
        partial=tuple(sorted(partial)),
        not_found=tuple(sorted(not_found)),
        mappings=_mappings(cursor, id_first=kind == "instrument_id"),
        size=size,
        end_ns=end if 0 < end < END_OF_TIME_NS else None,
        start_ns=start if 0 < start < END_OF_TIME_NS else None,
        dataset=cursor.dataset(),
    )


def _mappings(cursor: _Cursor, *, id_first: bool) -> tuple[Mapping, ...]:
    """Mappings as (symbol, days, id) whichever of symbol and id the request started from."""
    found = set()
    for _ in range(cursor.count(cursor.symbol_bytes + 4)):
        key = cursor.symbol()
        for _ in range(cursor.count(cursor.symbol_bytes + 8)):
            first, end, value = cursor.day(), cursor.day(), cursor.symbol()
            symbol, number = (value, key) if id_first else (key, value)
            if not value or first == end:
                continue  # days on which the vendor resolved nothing
            if not (number.isascii() and number.isdigit()) or int(number) >= 2**32:
                raise ValueError(f"symbol {symbol!r} is mapped to {number!r}, which is no instrument id")
            if end < first:
                raise ValueError(f"symbol {symbol!r} is mapped to {number} for days that end before they begin")
            found.add(Mapping(symbol, first, end, int(number)))
    return tuple(sorted(found))


def _coded(names: tuple[str, ...], code: int, none: int, what: str) -> str | None:
    if code == none:
        return None
    if code >= len(names):
        raise ValueError(f"unknown {what} {code}")
    return names[code]


def _text(raw: bytes) -> str:
    """Text that ends at its first zero byte."""
    return raw.partition(b"\0")[0].decode()


def spans(header: DbnHeader) -> tuple[LabelSpan, ...]:
    """Days on which each symbol of the header is mapped."""
    return tuple(LabelSpan(entry.symbol, entry.first_day, entry.end_day) for entry in header.mappings)
