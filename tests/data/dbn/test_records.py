"""Record areas of DBN files: every defect of a half-finished or damaged download is seen."""

import gc
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import DAY_NS, MINUTE_NS, START, bar, bars, dbn, header, put, records, zst
from tidewalk.core.errors import DataError
from tidewalk.data.dbn.header import parse_header
from tidewalk.data.dbn.labels import parts, read_header
from tidewalk.data.dbn.layouts import LAYOUTS
from tidewalk.data.dbn.records import Chunk, record_chunks, survey
from tidewalk.data.files.source import probe


def chunks(folder: Path, content: bytes, *, allow_truncated: bool = False, name: str = "es.dbn.zst") -> list[Chunk]:
    source = probe(put(folder, name, content))
    return list(record_chunks(source, parse_header(source), allow_truncated=allow_truncated))


def read(folder: Path, content: bytes) -> int:
    """Number of records."""
    return sum(len(chunk.records) for chunk in chunks(folder, content))


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
    source = probe(put(tmp_path, "es.dbn", header() + wrong.tobytes()))
    with pytest.raises(DataError, match="record 3"):
        next(record_chunks(source, parse_header(source)))  # before anyone has used it


def test_two_archives_in_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not one DBN stream: record 4 at byte .* another DBN file starts there"):
        read(tmp_path, zst(dbn(bars(100, 3))) + zst(dbn(bars(100, 3))))


def test_one_stream_in_two_frames_is_read_whole(tmp_path: Path) -> None:
    content = dbn(bars(100, 20_000))
    skipped = b"\x5a\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    assert read(tmp_path, zst(content[:10_001]) + skipped + zst(content[10_001:]) + skipped) == 20_000


def test_refusal_says_what_can_be_recovered(tmp_path: Path) -> None:
    content = dbn(bars(100, 100), end=START + DAY_NS)[:-1]
    with pytest.raises(DataError) as refused:
        read(tmp_path, content)
    assert (
        "99 whole records can be recovered, the last of 2024-01-02 16:38:00 UTC; the request runs to "
        "2024-01-03 15:00:00 UTC: --allow-truncated keeps them."
    ) in str(refused.value)
    with pytest.raises(DataError, match="0 whole records can be recovered: --allow-truncated"):
        read(tmp_path, dbn(bars(100, 1))[:-1])


@given(st.integers(0, 1), st.integers(1, 3_000), st.integers(1, 50_000), st.sampled_from([0, 1 << 40]))
def test_any_cut_is_refused_or_leaves_whole_records(
    tmp_path_factory: pytest.TempPathFactory, compressed: int, cut: int, chunk_bytes: int, ahead_bytes: int
) -> None:
    content = dbn(bars(100, 60))
    area = 60 * 56
    content = zst(content) if compressed else content
    kept = content[: max(len(content) - cut, 10 if compressed else len(content) - area)]
    folder = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidewalk.data.dbn.records.CHUNK_BYTES", chunk_bytes)
        patch.setattr("tidewalk.data.dbn.records.AHEAD_BYTES", ahead_bytes)
        if not compressed and (len(content) - len(kept)) % 56 == 0:
            assert read(folder, kept) == 60 - (len(content) - len(kept)) // 56  # no reader can tell
            return
        with pytest.raises(DataError, match=r"cut off|incomplete zstd frame|the file ends"):
            read(folder, kept)


@pytest.mark.parametrize("ahead_bytes", [0, 1 << 40])
@pytest.mark.parametrize("chunk_bytes", [1, 57, 1000, 1 << 20])
def test_chunks_of_any_size_hold_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, ahead_bytes: int
) -> None:
    rows = records(bars(100, 500))
    monkeypatch.setattr("tidewalk.data.dbn.records.AHEAD_BYTES", ahead_bytes)
    monkeypatch.setattr("tidewalk.data.dbn.records.CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr("tidewalk.data.files.archive.READ_STEP", 100)
    monkeypatch.setattr("tidewalk.data.files.archive.INPUT_STEP", 7)
    found = chunks(tmp_path, zst(header() + rows.tobytes(), frames=4))
    assert np.concatenate([chunk.records for chunk in found]).tobytes() == rows.astype(LAYOUTS["ohlcv-1m"]).tobytes()
    starts = np.cumsum([1] + [len(chunk.records) for chunk in found])[:-1]
    assert [chunk.first_record for chunk in found] == starts.tolist()


def test_reading_may_stop_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewalk.data.dbn.records.AHEAD_BYTES", 0)
    monkeypatch.setattr("tidewalk.data.dbn.records.CHUNK_BYTES", 1)
    source = probe(put(tmp_path, "es.dbn", dbn(bars(100, 50))))
    before = threading.active_count()
    for chunk in record_chunks(source, parse_header(source)):
        assert chunk.first_record == 1
        break
    del chunk
    gc.collect()
    assert threading.active_count() == before


def test_records_outside_the_request_are_counted(tmp_path: Path) -> None:
    rows = bars(100, 10)
    found = chunks(tmp_path, dbn(rows, start=START + 3 * MINUTE_NS, end=START + 8 * MINUTE_NS))[-1].findings
    # The bar that ends where the request starts and the two from its end on; one that reaches into it is inside.
    assert [(finding.defect, finding.count, finding.is_warning) for finding in found] == [("request", 4, True)]
    assert chunks(tmp_path, dbn(rows, start=START, end=START + 10 * MINUTE_NS))[-1].findings == ()


def test_early_end_of_a_long_request_is_noted(tmp_path: Path) -> None:
    content = dbn(bars(100, 3), end=START + 30 * DAY_NS)
    (finding,) = chunks(tmp_path, content)[-1].findings
    assert (finding.defect, finding.is_warning) == ("partial-end", True)
    (finding,) = chunks(tmp_path, dbn(bars(100, 3), end=START + 30 * DAY_NS, stype_in="raw_symbol"))[-1].findings
    assert (finding.defect, finding.is_warning) == ("partial-end", False)


def live(rows: bytes) -> bytes:
    return header([], None, stype_in=None, symbols=[]) + rows


def test_live_recording_gives_the_records_of_each_schema(tmp_path: Path) -> None:
    trades = np.zeros(2, np.dtype(LAYOUTS["trades"]))
    trades["length"], trades["rtype"], trades["ts_recv"] = 12, 0, START
    mixed = records(bars(100, 2)).tobytes() + trades.tobytes() + records(bars(100, 3)).tobytes()
    source = probe(put(tmp_path, "live.dbn", live(mixed)))
    found = {part.schema: part for part in parts(read_header(source))}
    assert found.keys() == {"ohlcv-1m", "trades"}
    for schema, count in (("ohlcv-1m", 5), ("trades", 2)):
        assert sum(len(chunk.records) for chunk in record_chunks(source, found[schema])) == count
    assert survey(source, parse_header(source)) == ({33: 5, 0: 2}, START + 2 * MINUTE_NS)


def test_live_recording_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    mixed = records(bars(100, 4)).tobytes()
    source = probe(put(tmp_path, "cut.dbn", live(mixed[:-5])))
    found = replace(parse_header(source), schema="ohlcv-1m", is_mixed=True)
    with pytest.raises(DataError, match=r"ends 51 bytes into record 4 \(a record has 56\)"):
        list(record_chunks(source, found))
    source = probe(put(tmp_path, "zero.dbn", live(mixed + bytes(64))))
    with pytest.raises(DataError, match="not one DBN stream: a record of 0 bytes at byte"):
        list(record_chunks(source, found))
    with pytest.raises(DataError, match="not one DBN stream: a record of 0 bytes at byte"):
        survey(source, found)
    wrong = records(bars(100, 1))
    wrong["length"] = 5
    source = probe(put(tmp_path, "short.dbn", live(wrong.tobytes() + bytes(20))))
    with pytest.raises(DataError, match=r"record 1 at byte \d+ has length 20 and type 33, needed are 56"):
        list(record_chunks(source, found))


def test_one_bar_is_enough(tmp_path: Path) -> None:
    assert read(tmp_path, dbn([bar(100, START)])) == 1
