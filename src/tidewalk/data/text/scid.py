"""Sierra Chart's binary intraday files (.scid): a header of 56 bytes, then records of 40.

Source: Sierra Chart, "Intraday Data File Format". Times are microseconds since 1899-12-30 in UTC, whatever the zone of
the chart; prices are 32-bit floats. A record of a single trade has 0 for its open (or a mark for a part of a larger
trade) and bid and ask in low and high: such records are no bars.
"""

import struct

import numpy as np
import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.files.source import Source, read_all
from tidewalk.data.text.columns import Columns

NAMES = ("time", "open", "high", "low", "close", "trades", "volume", "bidvolume", "askvolume")
COLUMNS = Columns(0, None, 1, 2, 3, 4, (6,), symbol=None, instrument_id=None, rtype=None)
RECORD = np.dtype([("time_us", "<i8"), *((name, "<f4") for name in NAMES[1:5]), *((name, "<u4") for name in NAMES[5:])])
HEADER_BYTES = 56
EPOCH_US = 25_569 * 86_400 * 10**6  # from 1899-12-30 to 1970-01-01
PART_OF_TRADE = -1.9e37
"""Opens below it mark the first and the last part of a trade (-1.99900095e37 and -1.99900197e37)."""


def read_scid(source: Source) -> pl.DataFrame:
    """Records as typed columns named by their position in `NAMES` ("0", "1", ...), stamps in UTC.

    Raises:
        DataError: another header, a file that ends inside a record, or records of single trades.
    """
    content = memoryview(read_all(source))
    size, record_size = struct.unpack_from("<II", content, 4) if len(content) >= HEADER_BYTES else (0, 0)
    if size < HEADER_BYTES or size > len(content) or record_size != RECORD.itemsize:
        raise DataError(
            f"{source.name}: no header of Sierra Chart's intraday files; it is of another version or damaged."
        )
    if (len(content) - size) % RECORD.itemsize:
        raise DataError(f"{source.name}: the file ends inside a record of {RECORD.itemsize} bytes. Copy it again.")
    records = np.frombuffer(content[size:], RECORD)
    single = (records["open"] == 0) | (records["open"] < PART_OF_TRADE)
    if single.any():
        first, count = int(np.flatnonzero(single)[0]) + 1, int(single.sum())
        raise DataError(
            f"{source.name}: record {first} is a single trade, no bar ({count} of {len(records)}). Store data by the "
            "minute (Intraday Data Storage Time Unit), or export bars as text."
        )
    # A hostile time would run over; what is out of range becomes a stamp that no bar has.
    ns = np.clip(records["time_us"] - EPOCH_US, -(2**62) // 1000, 2**62 // 1000) * 1000
    columns = {"0": pl.Series(ns).cast(pl.Datetime("ns", "UTC"))}
    return pl.DataFrame(columns | {str(i): np.ascontiguousarray(records[name]) for i, name in enumerate(NAMES) if i})
