"""Which record belongs to which symbol: by id and UTC day, from the header or from the records themselves."""

import time
from pathlib import Path

import databento_dbn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import ALWAYS, DAY_NS, START, bars, dbn, header, mapped, ns, put, records
from tidewalk.core.errors import DataError
from tidewalk.data.dbn.header import DbnHeader, Mapping
from tidewalk.data.dbn.labels import OTHER, UNMAPPED, label_map, parts, read_header
from tidewalk.data.files.source import probe


def read_head(folder: Path, content: bytes) -> DbnHeader:
    return read_header(probe(put(folder, "es.dbn", content)))


def owners_of(mappings: list[Mapping], labels: set[str], days: list[tuple[int, int]]) -> list[str | int]:
    """Owner of a record of each (id, day)."""
    found = label_map(mappings, labels, "es.dbn")
    rows = records([(number, day * DAY_NS, 1.0, 1) for number, day in days])
    return [found.labels[owner] if owner >= 0 else int(owner) for owner in found.owners(rows)]


entries = st.builds(
    lambda symbol, first, length, number: Mapping(symbol, first, first + length, number),
    st.sampled_from(["A", "B", "C"]),
    st.integers(0, 6),
    st.integers(1, 4),
    st.integers(5, 7),
)


@given(st.lists(entries, max_size=8), st.sets(st.sampled_from(["A", "B"])))
def test_lookup_is_that_of_a_search_through_all_mappings(mappings: list[Mapping], labels: set[str]) -> None:
    days = [(number, day) for number in range(4, 9) for day in range(12)]
    slow: list[str | int] = []
    for number, day in days:
        at = {m.symbol for m in mappings if m.instrument_id == number and m.first_day <= day < m.end_day}
        if len(at & labels) > 1:
            with pytest.raises(DataError, match=r"to both"):
                label_map(mappings, labels, "es.dbn")
            return
        slow.append(next(iter(at & labels), OTHER if at else UNMAPPED))
    ids = {(m.symbol, day, m.instrument_id) for m in mappings for day in range(m.first_day, m.end_day)}
    if len({(symbol, day) for symbol, day, _ in ids if symbol in labels}) < sum(symbol in labels for symbol, *_ in ids):
        with pytest.raises(DataError, match=r"maps [AB] to both instrument"):
            label_map(mappings, labels, "es.dbn")
        return
    assert owners_of(mappings, labels, days) == slow


def test_one_symbol_of_two_instruments_is_refused() -> None:
    twice = [Mapping("ESH4", 0, 10, 100), Mapping("ESH4", 9, 20, 200)]
    with pytest.raises(DataError, match="maps ESH4 to both instrument 100 and 200 on 1970-01-10"):
        label_map(twice, {"ESH4"}, "es.dbn")
    assert owners_of(twice, {"ESM4"}, [(100, 9)]) == [OTHER]


def test_ten_thousand_symbols_take_no_time() -> None:
    many = [Mapping(f"ESU3 C{i}", 100 + i % 9, 200, 1000 + i) for i in range(12_000)]
    start = time.process_time()
    assert len(label_map(many, {entry.symbol for entry in many}, "es.dbn").labels) == 12_000
    hostile = [Mapping(f"{i}", i, i + 12_000, 1) for i in range(12_000)]  # one id, all of them overlapping
    assert label_map(hostile, {"x"}, "es.dbn").owner.tolist()[1:3] == [OTHER, OTHER]
    assert time.process_time() - start < 2


def announced(asked: str, held: str, number: int, stamp_ns: int, start_ns: int = 2**64 - 1) -> bytes:
    """A symbol mapping record as a live session sends it."""
    message = databento_dbn.SymbolMappingMsg(
        publisher_id=0,
        instrument_id=number,
        ts_event=stamp_ns,
        stype_in=databento_dbn.SType.PARENT,
        stype_in_symbol=asked,
        stype_out=databento_dbn.SType.RAW_SYMBOL,
        stype_out_symbol=held,
        start_ts=start_ns,
        end_ts=2**64 - 1,
    )
    return bytes(message)


LIVE = header([], None, stype_in=None, symbols=[])


def test_live_recording_names_its_instruments_in_records(tmp_path: Path) -> None:
    content = LIVE + announced("ES.FUT", "ESH4", 100, START) + records(bars(100, 3)).tobytes()
    found = read_head(tmp_path, content + records(bars(100, 2), 34).tobytes())
    day = START // DAY_NS
    assert found.mappings == (Mapping("ESH4", day - 1, day + 1, 100),)
    assert found.schema is None
    assert [(part.schema, part.is_mixed) for part in parts(found)] == [("ohlcv-1m", True), ("ohlcv-1h", True)]


def test_live_continuous_series_moves_to_the_next_contract(tmp_path: Path) -> None:
    second = START + 5 * DAY_NS
    content = LIVE + announced("ES.c.0", "ESH4", 100, START, START) + records(bars(100, 3)).tobytes()
    content += announced("ES.c.0", "ESM4", 200, second, second) + records(bars(200, 3, second)).tobytes()
    day = START // DAY_NS
    assert read_head(tmp_path, content).mappings == (
        Mapping("ES.c.0", day, day + 5, 100),
        Mapping("ES.c.0", day + 5, day + 6, 200),
        Mapping("ESH4", day, day + 6, 100),
        Mapping("ESM4", day + 5, day + 6, 200),
    )


def test_live_id_given_to_another_symbol_is_taken_from_the_first(tmp_path: Path) -> None:
    second = START + 2 * DAY_NS
    content = LIVE + announced("ESH4", "ESH4", 100, START, START) + announced("ESM4", "ESM4", 100, second, second)
    day = START // DAY_NS
    found = read_head(tmp_path, content + records(bars(100, 1, second)).tobytes()).mappings
    assert found == (Mapping("ESH4", day, day + 2, 100), Mapping("ESM4", day + 2, day + 3, 100))


def test_definitions_name_their_instruments(tmp_path: Path) -> None:
    expires = ns("2024-03-15 13:30")
    definition = databento_dbn.InstrumentDefMsg  # its constructor needs 60 fields: bytes are set in place instead
    layout = np.dtype(definition._dtypes)
    record = np.zeros(2, layout)
    record["length"], record["rtype"], record["ts_recv"] = layout.itemsize // 4, 0x13, START
    record["instrument_id"], record["expiration"] = [100, 200], [expires, 2**64 - 1]
    record["raw_symbol"] = [b"ESH4", b"ESM4"]
    found = read_head(tmp_path, header([], "definition", symbols=["ALL_SYMBOLS"]) + record.tobytes()).mappings
    day = START // DAY_NS
    assert found[0] == Mapping("ESH4", day, expires // DAY_NS + 1, 100)
    assert (found[1].symbol, found[1].first_day, found[1].instrument_id) == ("ESM4", day, 200)


def test_real_live_recording(shared_data: Path) -> None:
    found = read_header(probe(shared_data / "dbn" / "live_mixed-schema.dbn.zst"))
    assert {entry.symbol for entry in found.mappings} == {"ESZ4"}
    assert {"ohlcv-1s", "ohlcv-1m", "trades", "mbp-1", "statistics", "definition"} <= set(found.schemas)


def test_header_of_one_schema_is_left_alone(tmp_path: Path) -> None:
    found = read_head(tmp_path, dbn(bars(100, 2), [mapped("ESH4", (*ALWAYS, 100))]))
    assert parts(found) == (found,)
    assert not found.is_mixed
