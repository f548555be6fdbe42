"""Sierra Chart's binary files, written here byte by byte."""

import struct
from pathlib import Path

import pytest

from data.market_files import MINUTE_NS, START, put
from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import notes
from tidewalk.data.files.source import probe
from tidewalk.data.rows import FileRows
from tidewalk.data.text.table import open_table, parse_table
from tidewalk.data.text.timing import table_rows

DAYS_1899_TO_1970 = 25_569


def scid(bars: int = 3, open_price: float = 4800.25) -> bytes:
    header = struct.pack("<4sIIHHI36s", b"SCID", 56, 40, 1, 0, 0, b"")
    start_us = START // 1000 + DAYS_1899_TO_1970 * 86_400 * 10**6
    return header + b"".join(
        struct.pack("<q4f4I", start_us + i * 60 * 10**6, open_price, 4802, 4799, 4801.5, 7, 10 + i, 4, 6)
        for i in range(bars)
    )


def read(folder: Path, content: bytes) -> FileRows:
    parsed = parse_table(open_table(probe(put(folder, "ES.scid", content))))
    return table_rows(parsed, ("ES",), zone=None, bar_label=None)


def test_bars_are_read_in_utc(tmp_path: Path) -> None:
    found = read(tmp_path, scid())
    rows = found.rows["ES"]
    assert rows.stamp_ns.tolist() == [START + i * MINUTE_NS for i in range(3)]
    assert (rows.open_e9[0], rows.close_e9[0]) == (4_800_250_000_000, 4_801_500_000_000)
    assert rows.volume.tolist() == [10.0, 11.0, 12.0]
    assert (found.interval_ns, found.close_labelled) == (MINUTE_NS, False)
    assert "stamps are taken as the start of the bar, as Sierra Chart writes them" in notes(found.findings)


@pytest.mark.parametrize("open_price", [0.0, -1.99900095e37, -1.99900197e37])
def test_single_trades_are_no_bars(tmp_path: Path, open_price: float) -> None:
    with pytest.raises(DataError, match=r"ES\.scid: record 1 is a single trade, no bar \(3 of 3\)"):
        read(tmp_path, scid(open_price=open_price))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (scid()[:-1], "the file ends inside a record of 40 bytes"),
        (scid()[:40], "no header of Sierra Chart"),
        (scid()[:8] + struct.pack("<I", 48) + scid()[12:], "no header of Sierra Chart"),
        (scid()[:4] + struct.pack("<I", 2**31) + scid()[8:], "no header of Sierra Chart"),
        (scid(0), "a header and no rows"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)
