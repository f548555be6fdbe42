"""Bars of DBN files: every record under its symbol, every defect of the request said."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from data.market_files import (
    ALWAYS,
    DAY_NS,
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
from tidewalk.data.checks import quality
from tidewalk.data.dbn.bars import by_owner, read_rows
from tidewalk.data.dbn.header import spans
from tidewalk.data.dbn.labels import read_header
from tidewalk.data.files.source import probe
from tidewalk.data.rows import FileRows


def read(folder: Path, content: bytes, *labels: str, allow_truncated: bool = False) -> FileRows:
    source = probe(put(folder, "es.dbn.zst", content))
    found = read_header(source)
    asked = labels or [span.label for span in spans(found)]
    return read_rows(source, found, asked, 0, allow_truncated=allow_truncated)


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
        "no symbol is mapped to their instrument on that day: 2 of 4, first instrument 100 at 2024-01-04"
        in found.findings[0].text
    )
    assert found.findings[0].is_warning


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
    assert quality.warnings(found.findings) == (
        "symbols the vendor did not find: ESX9",
        "the request was limited to 3 records, so the file may stop early",
    )
    assert read(tmp_path, dbn(bars(100, 3), limit=4)).findings == ()


def test_short_and_partial_answers_are_noted(tmp_path: Path) -> None:
    week_ns = 7 * DAY_NS
    facts = {"partial": [f"ESX{i}" for i in range(9)], "end": START + 2 * MINUTE_NS + week_ns + 1}
    assert tuple(finding.text for finding in read(tmp_path, dbn(bars(100, 3), **facts)).findings) == (
        "symbols listed for a part of the time only: ESX0, ESX1, ESX2, ESX3, ESX4, ESX5, ESX6, ESX7 and 1 more",
        "the request runs to 2024-01-09 15:02:00.000000001 UTC, the last record is of 2024-01-02 15:02:00 UTC",
    )
    assert read(tmp_path, dbn(bars(100, 3), end=START + 4 * DAY_NS)).findings == ()


def test_file_without_records_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, dbn([]))
    assert (found.rows_read, quality.notes(found.findings)) == (0, ("the file holds no records",))


def test_rows_keep_the_order_of_the_file_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [bar(100 + 100 * (i % 3), START + i // 3 * MINUTE_NS, 4800 + i % 7) for i in range(400)]
    whole = read(tmp_path, dbn(rows))
    monkeypatch.setattr("tidewalk.data.dbn.records.CHUNK_BYTES", 300)
    pieces = read(tmp_path, zst(dbn(rows), frames=9))
    assert pieces.rows.keys() == whole.rows.keys()
    for label, part in whole.rows.items():
        assert part.row.tolist() == list(range(1 + ["ESH4", "ESM4", "ESH4-ESM4"].index(label), 401, 3))
        for name in ("stamp_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume", "instrument_id", "row"):
            assert np.array_equal(getattr(part, name), getattr(pieces.rows[label], name)), name


def test_owners_are_split_in_order() -> None:
    parts = by_owner(np.array([1, -1, 0, 1, -2, 0], np.int16))
    assert [(label, index.tolist()) for label, index in parts] == [(0, [2, 5]), (1, [0, 3])]
    assert by_owner(np.empty(0, np.int16)) == []


@pytest.mark.parametrize("is_zst", [0, 1])
def test_whole_records_of_a_cut_off_file_are_kept_when_asked(tmp_path: Path, is_zst: int) -> None:
    content = dbn(bars(100, 20_000), end=START + DAY_NS * 20)
    content = zst(content)[:-3] if is_zst else content[:-3]
    found = read(tmp_path, content, allow_truncated=True)
    kept = len(found.rows["ESH4"].row)
    assert kept == found.rows_read
    assert 15_000 < kept < 20_000
    assert is_zst or kept == 19_999
    (finding,) = quality.warnings(found.findings)
    last = np.datetime64(START + (kept - 1) * MINUTE_NS, "ns")
    assert f"{kept:,} whole records, the last of {str(last)[:10]}" in finding
    assert "the request runs to 2024-01-22 15:00:00 UTC" in finding
    assert found.findings[0].defect == ("truncated-archive" if is_zst else "truncated-records")
    assert (found.findings[0].count, found.rows["ESH4"].stamp_ns[-1]) == (kept, START + (kept - 1) * MINUTE_NS)


def test_symbols_with_blanks_are_read(tmp_path: Path) -> None:
    odd = [mapped("TFM FMH0024!", (*ALWAYS, 100))]
    assert len(read(tmp_path, dbn(bars(100, 3), odd), "TFM FMH0024!").rows["TFM FMH0024!"].row) == 3


def test_unmapped_error_is_not_said_of_cut_records(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cut off"):
        read(tmp_path, dbn(bars(7, 3))[:-1])


def test_memory_is_that_of_the_rows_kept(tmp_path: Path) -> None:
    # 300,000 records, 17 MB, of a spread; 300 of the contract.
    spread = np.repeat(records(bars(300, 1)), 300_000)
    spread["volume"] = np.random.default_rng(1).integers(1 << 40, size=len(spread))
    rows = np.concatenate([spread, records(bars(100, 300))])
    source = probe(put(tmp_path, "es.dbn.zst", zst(header() + rows.tobytes())))
    found = read_header(source)
    for label, kept in (("ESH4", 300), ("ESH4-ESM4", 300_000)):
        tracemalloc.start()
        assert len(read_rows(source, found, [label], 0).rows[label].row) == kept
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (8 << 20) + 68 * 1.2 * kept
