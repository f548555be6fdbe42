"""Which symbol a record belongs to, by instrument id and UTC day; and mappings found in records, not in a header.

The same id may be another symbol on another day, so it never tells a symbol alone. A live recording has no mappings in
its header but a record each time an id is announced; definitions carry the symbol themselves.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.data.dbn.header import END_OF_TIME_NS, LAST_DAY, DbnHeader, Mapping, parse_header
from tidewalk.data.dbn.layouts import RTYPES
from tidewalk.data.dbn.records import index_stamps, record_chunks, survey
from tidewalk.data.files.source import Source
from tidewalk.data.rows import DAY_NS

OTHER = -1
UNMAPPED = -2
NO_DATA = ("tbbo", "symbol mapping")  # the first has the record type of mbp-1
CONTINUOUS = re.compile(r"^.+\.[cnv]\.\d+$")


@dataclass(frozen=True)
class LabelMap:
    """Instrument ids and days of some labels, for lookup.

    Attributes:
        labels: the labels asked for that the mappings know, sorted.
        key: int64 [K] id and first day of each stretch in one integer, rising.
        owner: int [K] index into `labels`, `OTHER` for another label, `UNMAPPED` for none, until the next stretch.
    """

    labels: tuple[str, ...]
    key: NDArray[np.int64]
    owner: NDArray[np.signedinteger]

    def owners(self, records: NDArray[Any]) -> NDArray[np.signedinteger]:
        """For each record [N] the index of its label in `labels`, `OTHER` or `UNMAPPED`."""
        day = (index_stamps(records) // np.uint64(DAY_NS)).astype(np.int64)
        place = np.searchsorted(self.key, _key(records["instrument_id"].astype(np.int64), day), side="right") - 1
        return self.owner[place]


def label_map(mappings: Iterable[Mapping], labels: Collection[str], name: str) -> LabelMap:
    """Lookup of the labels asked for.

    Args:
        mappings: those of a header.
        labels: symbols as in the mappings.
        name: file name for messages.

    Raises:
        DataError: one instrument has two of the labels on a day, or one label two instruments.
    """
    entries = list(mappings)
    known = tuple(sorted({entry.symbol for entry in entries if entry.symbol in labels}))
    number = {label: place for place, label in enumerate(known)}
    _refuse_two_instruments([entry for entry in entries if entry.symbol in number], name)
    by_id: dict[int, list[Mapping]] = {}
    for entry in entries:
        by_id.setdefault(entry.instrument_id, []).append(entry)
    key, owner = [0], [UNMAPPED]
    for instrument_id in sorted(by_id):
        for day, label in _stretches(by_id[instrument_id], number, name):
            key.append((instrument_id << DAY_BITS) + day)
            owner.append(label)  # the last stretch of an id is unmapped and reaches to the next id
    # Integers of 16 bits are sorted by their digits, which is several times faster.
    return LabelMap(known, np.array(key, np.int64), np.array(owner, np.int16 if len(known) < 2**15 else np.int32))


DAY_BITS = 22  # ids have 32 bits, days of four-digit years fit into 22: one integer orders both


def _key(instrument_id: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    return (instrument_id << DAY_BITS) + day


def _stretches(entries: list[Mapping], number: dict[str, int], name: str) -> list[tuple[int, int]]:
    """First day and owner of every stretch of days of one instrument, in order of time."""
    if len(entries) == 1:
        only = entries[0]
        return [(only.first_day, number.get(only.symbol, OTHER)), (only.end_day, UNMAPPED)]
    found, wanted, num_others = [], Counter[str](), 0
    starts = [(entry.first_day, 1, entry.symbol) for entry in entries]
    ends = [(entry.end_day, -1, entry.symbol) for entry in entries]
    for day, changes in itertools.groupby(sorted(starts + ends), key=lambda change: change[0]):
        for _, step, symbol in changes:
            if symbol in number:
                wanted[symbol] += step
            else:
                num_others += step
        wanted = +wanted  # without the symbols that have ended
        if len(wanted) > 1:
            first, second, *_ = sorted(wanted)
            raise DataError(
                f"{name}: the header maps instrument {entries[0].instrument_id} to both {first} and {second} "
                f"on {np.datetime64(day, 'D')}. Ask for one of them with --symbol."
            )
        found.append((day, number[next(iter(wanted))] if wanted else OTHER if num_others else UNMAPPED))
    return found


def _refuse_two_instruments(entries: list[Mapping], name: str) -> None:
    """Refuse a label that means two instruments on one day."""
    ordered = sorted(entries)  # by symbol, then by first day
    reached: dict[str, Mapping] = {}
    for entry in ordered:
        before = reached.get(entry.symbol)
        if before and entry.first_day < before.end_day and entry.instrument_id != before.instrument_id:
            raise DataError(
                f"{name}: the header maps {entry.symbol} to both instrument {before.instrument_id} and "
                f"{entry.instrument_id} on {np.datetime64(entry.first_day, 'D')}. Download the file again."
            )
        if before is None or entry.end_day > before.end_day:
            reached[entry.symbol] = entry


def read_header(source: Source) -> DbnHeader:
    """Header of a DBN file; its mappings come from the records where the header has none and the records know.

    Raises:
        DataError: newer version, or damaged or cut-off metadata.
    """
    header = parse_header(source)
    if header.schema is not None:
        known = header.mappings or header.schema != "definition"
        return header if known else replace(header, mappings=definition_mappings(source, header))
    counts, last_ns = survey(source, header)
    held = tuple(schema for schema, rtypes in RTYPES.items() if schema not in NO_DATA and counts.keys() & {*rtypes})
    header = replace(header, schemas=held)
    return header if header.mappings else replace(header, mappings=_announced(source, header, last_ns))


def parts(header: DbnHeader) -> tuple[DbnHeader, ...]:
    """A header per schema that the file holds: itself, or for a live recording of mixed schemas several."""
    if header.schema is not None:
        return (header,)
    return tuple(replace(header, schema=schema, is_mixed=True) for schema in header.schemas)


def _announced(source: Source, header: DbnHeader, last_ns: int) -> tuple[Mapping, ...]:
    """Mappings that the symbol mapping records of a live recording announce.

    An id is the symbol announced until another announcement; before the first one too, for a recording may open with
    records of the day before.
    """
    found: list[tuple[str, int, int]] = []
    for chunk in record_chunks(source, replace(header, schema="symbol mapping", is_mixed=True), allow_truncated=True):
        for record in chunk.records:
            start_ns = int(record["start_ts"])
            day = (start_ns if 0 < start_ns < END_OF_TIME_NS else int(record["ts_event"]) - DAY_NS) // DAY_NS
            asked, held = _symbol(record["stype_in_symbol"]), _symbol(record["stype_out_symbol"])
            found += [(label, day, int(record["instrument_id"])) for label in _labels(asked, held)]
    return _successive(found, lambda _: last_ns // DAY_NS + 1)


def _labels(asked: str, held: str) -> set[str]:
    """Labels of an instrument: its symbol, and the continuous series it stands for; a parent names no instrument."""
    return {label for label in (held or asked, asked if CONTINUOUS.match(asked) else "") if label}


def definition_mappings(source: Source, header: DbnHeader) -> tuple[Mapping, ...]:
    """Mappings that definition records give: each symbol from its first definition to its expiration.

    Useful for other files of the same instruments whose headers have none (a request for all symbols).
    """
    found: list[tuple[str, int, int]] = []
    end_day: dict[tuple[str, int], int] = {}
    for chunk in record_chunks(source, header, allow_truncated=True):
        records = chunk.records
        days = (records["ts_recv"] // np.uint64(DAY_NS)).astype(np.int64).tolist()
        ids, expirations_ns = records["instrument_id"].tolist(), records["expiration"].tolist()
        rows = zip(records["raw_symbol"].tolist(), days, ids, expirations_ns, strict=True)
        for raw, day, instrument_id, expiration_ns in rows:
            symbol = _symbol(raw)
            if symbol:
                found.append((symbol, day, instrument_id))
                expires = expiration_ns // DAY_NS + 1 if expiration_ns < END_OF_TIME_NS else LAST_DAY
                end_day[symbol, instrument_id] = max(expires, day + 1)
    return _successive(found, end_day.__getitem__)


def _successive(found: Iterable[tuple[str, int, int]], end_of: Callable[[tuple[str, int]], int]) -> tuple[Mapping, ...]:
    """Mappings from (symbol, first day, id): each holds until its symbol or its id is given away, or its end."""
    mappings: list[Mapping] = []
    opened: dict[str, tuple[int, int]] = {}
    holder: dict[tuple[int, bool], str] = {}

    def close(symbol: str, day: int) -> None:
        first, instrument_id = opened.pop(symbol)
        end = min(day, end_of((symbol, instrument_id)))
        if end > first:
            mappings.append(Mapping(symbol, first, end, instrument_id))

    for symbol, day, instrument_id in sorted(dict.fromkeys(found), key=lambda entry: entry[1]):
        kind = (instrument_id, CONTINUOUS.match(symbol) is not None)
        before = holder.get(kind)
        if opened.get(symbol, (0, -1))[1] == instrument_id:
            continue
        if before in opened and opened[before][1] == instrument_id:
            close(before, day)
        if symbol in opened:
            close(symbol, day)
        opened[symbol], holder[kind] = (day, instrument_id), symbol
    for symbol in list(opened):
        close(symbol, LAST_DAY)
    return tuple(sorted(mappings))


def _symbol(raw: bytes) -> str:
    return raw.decode(errors="replace")
