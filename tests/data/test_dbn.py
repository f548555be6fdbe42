"""DBN files: every defect of a half-finished or damaged download is seen."""

from pathlib import Path

import databento_dbn
import numpy as np
import pytest

from data.market_files import (
    ALWAYS,
    DAY_NS,
    ES_PARENT,
    MINUTE_NS,
    START,
    UNDEF,
    Mapped,
    bar,
    bars,
    dbn,
    header,
    mapped,
    ns,
    put,
    records,
    zst,
)
from tidewalk.core.errors import DataError
from tidewalk.data.dbn import RECORD_FIELDS, DbnHeader, read_header, read_rows, spans
from tidewalk.data.rows import FileRows
from tidewalk.data.source import probe


def read(folder: Path, content: bytes, *labels: str) -> FileRows:
    source = probe(put(folder, "es.dbn.zst", content))
    found = read_header(source)
    return read_rows(source, found, labels or [span.label for span in spans(found)], 0)


def read_head(folder: Path, content: bytes) -> DbnHeader:
    return read_header(probe(put(folder, "es.dbn", content)))


def test_record_layout_is_the_vendors() -> None:
    assert np.dtype(RECORD_FIELDS) == np.dtype(databento_dbn.OHLCVMsg._dtypes)
    assert np.dtype(RECORD_FIELDS).itemsize == 56


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("frames", [0, 1, 3])
def test_versions_and_compressions_give_the_same_rows(tmp_path: Path, version: int, frames: int) -> None:
    content = dbn(bars(100, 200), version=version)
    assert content[3] == version
    found = read(tmp_path, zst(content, frames=frames) if frames else content)
    rows = found.rows["ESH4"]
    assert (found.rows_read, len(rows.row), len(found.rows["ESM4"].row)) == (200, 200, 0)
    assert rows.stamp_ns.tolist() == [START + i * MINUTE_NS for i in range(200)]
    assert rows.open_e9[0] == 4_800_000_000_000
    assert rows.close_e9[0] == 4_800_250_000_000
    assert rows.volume[0] == 10.0
    assert rows.row.tolist() == list(range(1, 201))


def test_header_holds_the_request_with_mappings_in_a_fixed_order(tmp_path: Path) -> None:
    found = read_head(tmp_path, dbn([], limit=7, not_found=["ESX9"], partial=["b", "a"], version=2))
    assert (found.version, found.schema, found.stype_in, found.limit) == (2, "ohlcv-1m", "parent", 7)
    assert (found.not_found, found.partial, found.symbols) == (("ESX9",), ("a", "b"), ("ES.FUT",))
    assert [entry.symbol for entry in found.mappings] == ["ESH4", "ESH4-ESM4", "ESM4"]
    assert [entry.instrument_id for entry in found.mappings] == [100, 300, 200]


def test_mapping_that_starts_from_the_id_is_turned_round(tmp_path: Path) -> None:
    facts = {"stype_in": "instrument_id", "stype_out": "raw_symbol", "symbols": ["100"]}
    found = read_head(tmp_path, header([mapped("100", (*ALWAYS, "ESH4"))], **facts))
    assert [(entry.symbol, entry.instrument_id) for entry in found.mappings] == [("ESH4", 100)]


def test_days_without_an_instrument_are_passed_over(tmp_path: Path) -> None:
    holes = mapped("ESH4", ("2024-01-01", "2024-01-02", ""), ("2024-01-02", "2024-01-03", 100))
    assert len(read_head(tmp_path, header([holes])).mappings) == 1


def test_newer_version_is_refused(tmp_path: Path) -> None:
    content = bytearray(dbn(bars(100, 2)))
    content[3] = 4
    with pytest.raises(DataError, match=r"DBN version 4; versions 1 to 3 can be read"):
        read_head(tmp_path, bytes(content))


def test_cut_or_damaged_header_is_refused(tmp_path: Path) -> None:
    content = dbn(bars(100, 2))
    for cut in (5, 8, 100):
        with pytest.raises(DataError, match="ends inside its DBN header"):
            read_head(tmp_path, content[:cut])
    damaged = bytearray(content)
    damaged[4:8] = b"\xff\xff\xff\xff"
    with pytest.raises(DataError, match="ends inside its DBN header"):
        read_head(tmp_path, bytes(damaged))
    damaged = bytearray(content)
    damaged[8:24] = b"\xff" * 16  # dataset name: not UTF-8
    with pytest.raises(DataError, match="damaged DBN header"):
        read_head(tmp_path, bytes(damaged))


@pytest.mark.parametrize("missing", [1, 20, 55])
def test_plain_file_cut_inside_a_record_is_refused(tmp_path: Path, missing: int) -> None:
    # An official reader gives 99 of 100 rows here.
    with pytest.raises(DataError, match=rf"ends {56 - missing} bytes into record 100 \(a record has 56\)"):
        read(tmp_path, dbn(bars(100, 100))[:-missing])


@pytest.mark.parametrize("cut", [1, 100, 0.5])
def test_cut_off_download_is_refused(tmp_path: Path, cut: float) -> None:
    content = zst(dbn(bars(100, 20_000)))
    kept = len(content) - int(cut if cut >= 1 else cut * len(content))
    with pytest.raises(DataError, match="incomplete zstd frame"):
        read(tmp_path, content[:kept])


def test_mixed_bar_lengths_are_refused(tmp_path: Path) -> None:
    content = dbn(bars(100, 1)) + records(bars(100, 1), 35).tobytes() + records(bars(100, 1)).tobytes()
    place = len(dbn(bars(100, 1)))
    with pytest.raises(DataError, match=rf"mixed bar intervals: .* ohlcv-1m, record 2 at byte {place} is ohlcv-1d"):
        read(tmp_path, content)


def test_two_files_in_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not one DBN stream: record 4 at byte .* another DBN file starts there"):
        read(tmp_path, dbn(bars(100, 3)) + dbn(bars(100, 3)))


def test_wrong_record_length_is_refused(tmp_path: Path) -> None:
    wrong = records(bars(100, 3))
    wrong["length"][1] = 0
    with pytest.raises(DataError, match=r"not one DBN stream: record 2 .* length 0 and type 33, needed are 56 and 33"):
        read(tmp_path, header() + wrong.tobytes())


def test_record_without_time_is_refused(tmp_path: Path) -> None:
    wrong = records(bars(100, 3))
    wrong["ts_event"][2] = 2**64 - 1
    with pytest.raises(DataError, match="record 3 has no usable ts_event"):
        read(tmp_path, header() + wrong.tobytes())


def test_instruments_are_told_by_id_and_day(tmp_path: Path) -> None:
    # The id 100 is ESH4 for a day and ESM4 on the next; nothing says what it is on the third.
    reused: list[Mapped] = [
        mapped("ESH4", ("2024-01-02", "2024-01-03", 100)),
        mapped("ESM4", ("2024-01-03", "2024-01-04", 100)),
    ]
    days = [bar(100, START + day * DAY_NS) for day in range(3)]
    found = read(tmp_path, dbn([*days, bar(7, START)], reused))
    assert found.rows["ESH4"].stamp_ns.tolist() == [START]
    assert found.rows["ESM4"].stamp_ns.tolist() == [START + DAY_NS]
    assert (found.rows_read, found.rows_unmapped) == (4, 2)
    assert (
        "no symbol is mapped to their instrument on that day: 2, first instrument 100 at 2024-01-04" in found.notes[0]
    )


def test_day_ends_at_utc_midnight(tmp_path: Path) -> None:
    only = [mapped("ESH4", ("2024-01-02", "2024-01-03", 100))]
    stamps = [ns("2024-01-02 00:00"), ns("2024-01-02 23:59"), ns("2024-01-03 00:00"), ns("2024-01-01 23:59")]
    found = read(tmp_path, dbn([bar(100, stamp) for stamp in stamps], only))
    assert found.rows["ESH4"].stamp_ns.tolist() == stamps[:2]


def test_unwanted_instruments_are_not_unmapped(tmp_path: Path) -> None:
    found = read(tmp_path, dbn([*bars(100, 3), *bars(300, 4)]), "ESH4")
    assert (found.rows_read, found.rows_unmapped, list(found.rows)) == (7, 0, ["ESH4"])


def test_one_instrument_under_two_wanted_names_is_refused(tmp_path: Path) -> None:
    twice = [mapped("ES.c.0", (*ALWAYS, 100)), mapped("ES.v.0", (*ALWAYS, 100))]
    content = dbn(bars(100, 3), twice, stype_in="continuous")
    assert len(read(tmp_path, content, "ES.v.0").rows["ES.v.0"].row) == 3
    with pytest.raises(DataError, match=r"maps instrument 100 to both ES\.c\.0 and ES\.v\.0"):
        read(tmp_path, content, "ES.c.0", "ES.v.0")


def test_missing_price_keeps_its_sentinel(tmp_path: Path) -> None:
    wrong = records(bars(100, 2))
    for name in ("open", "high", "low", "close"):
        wrong[name][0] = UNDEF
    assert read(tmp_path, header() + wrong.tobytes()).rows["ESH4"].close_e9.tolist() == [UNDEF, 4_800_500_000_000]


def test_records_with_send_times_are_read(tmp_path: Path) -> None:
    plain = records(bars(100, 3))
    plain["length"] = 16
    longer = b"".join(plain[i].tobytes() + bytes(8) for i in range(3))
    found = read(tmp_path, header(ts_out=True) + longer)
    assert found.rows["ESH4"].stamp_ns.tolist() == [START, START + MINUTE_NS, START + 2 * MINUTE_NS]


def test_limit_and_symbols_not_found_are_warned_of(tmp_path: Path) -> None:
    found = read(tmp_path, dbn(bars(100, 3), limit=3, not_found=["ESX9"]))
    assert found.warnings == (
        "symbols the vendor did not find: ESX9",
        "the request was limited to 3 records, so the file may stop early",
    )
    assert read(tmp_path, dbn(bars(100, 3), limit=4)).warnings == ()


def test_short_and_partial_answers_are_noted(tmp_path: Path) -> None:
    week_ns = 7 * DAY_NS
    facts = {"partial": [f"ESX{i}" for i in range(9)], "end": START + 2 * MINUTE_NS + week_ns + 1}
    assert read(tmp_path, dbn(bars(100, 3), **facts)).notes == (
        "symbols listed for a part of the time only: ESX0, ESX1, ESX2, ESX3, ESX4, ESX5, ESX6, ESX7 and 1 more",
        "the request runs to 2024-01-09 15:02:00.000000001 UTC, the last record is of 2024-01-02 15:02:00 UTC",
    )
    assert read(tmp_path, dbn(bars(100, 3), end=START + week_ns)).notes == ()


def test_file_without_records_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, dbn([]))
    assert (found.rows_read, found.notes) == (0, ("the file holds no records",))


def test_mapping_to_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"symbol 'ESH4' is mapped to 'x', which is no instrument id"):
        read_head(tmp_path, header([mapped("ESH4", (*ALWAYS, "x"))]))


def test_spans_follow_the_mappings(tmp_path: Path) -> None:
    found = spans(read_head(tmp_path, header(ES_PARENT)))
    assert next((span.label, span.first_day, span.end_day) for span in found) == ("ESH4", 10957, 47482)
