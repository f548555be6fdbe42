"""Headers of DBN files: as the vendor's own reader understands them, and never more memory than they have bytes."""

import datetime
from pathlib import Path

import databento_dbn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.market_files import ALWAYS, ES_PARENT, bars, dbn, header, mapped, put
from tidewalk.core.errors import DataError
from tidewalk.data.dbn.header import SCHEMAS, STYPES, DbnHeader, parse_header, spans
from tidewalk.data.files.source import Source, probe, read_all


def read_head(folder: Path, content: bytes) -> DbnHeader:
    return parse_header(probe(put(folder, "es.dbn", content)))


def in_memory(content: bytes) -> DbnHeader:
    return parse_header(Source(Path("es.dbn"), "", "dbn", content))


def by_vendor(content: bytes) -> tuple[object, ...]:
    """Facts of a header as the vendor's package decodes them."""
    facts = databento_dbn.Metadata.decode(content)
    epoch = datetime.date(1970, 1, 1)
    mappings = [
        (symbol, (span["start_date"] - epoch).days, (span["end_date"] - epoch).days, int(span["symbol"]))
        for symbol, intervals in facts.mappings.items()
        for span in intervals
        if span["symbol"]
    ]
    kinds = tuple(None if kind is None else str(kind) for kind in (facts.schema, facts.stype_in))
    lists = (tuple(facts.symbols), tuple(sorted(facts.partial)), tuple(sorted(facts.not_found)))
    return (facts.dataset, *kinds, facts.start or None, facts.end, facts.limit, facts.ts_out, *lists, sorted(mappings))


def by_us(found: DbnHeader) -> tuple[object, ...]:
    mappings = [(entry.symbol, entry.first_day, entry.end_day, entry.instrument_id) for entry in found.mappings]
    times = (found.start_ns, found.end_ns, found.limit, found.ts_out)
    return (
        found.dataset,
        found.schema,
        found.stype_in,
        *times,
        found.symbols,
        found.partial,
        found.not_found,
        mappings,
    )


def test_real_headers_are_understood_as_by_the_vendor(shared_data: Path) -> None:
    checked = 0
    for path in sorted(shared_data.glob("dbn*/*")):
        source = probe(path)
        if source.content == "dbn":
            assert by_us(parse_header(source)) == by_vendor(bytes(read_all(source))), path.name
            checked += 1
    assert checked >= 50


names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=5)


@given(
    st.lists(names, max_size=4),
    st.dictionaries(names, st.integers(0, 2**32 - 1), max_size=4),
    st.sampled_from(SCHEMAS),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 2**61),
    st.integers(0, 1),
)
def test_headers_written_by_the_vendor_are_read_alike(
    symbols: list[str], ids: dict[str, int], schema: str, version: int, end: int, ts_out: int
) -> None:
    mappings = [mapped(symbol, (*ALWAYS, number)) for symbol, number in ids.items()]
    facts = {"symbols": symbols, "not_found": symbols[:1], "start": 1, "end": end, "ts_out": bool(ts_out)}
    content = header(mappings, schema, version=version, **facts)
    assert by_us(in_memory(content)) == by_vendor(content)


def test_codes_are_the_vendors() -> None:
    assert tuple(map(str, databento_dbn.Schema.variants())) == SCHEMAS
    assert set(map(str, databento_dbn.SType.variants())) == set(STYPES)
    for code, name in enumerate(STYPES):
        content = bytearray(header([]))
        content[8 + 42] = code
        assert in_memory(bytes(content)).stype_in == name == str(databento_dbn.Metadata.decode(bytes(content)).stype_in)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_counts_beyond_the_end_ask_for_no_memory(version: int) -> None:
    # Counts of symbols, partial, not found and mappings; the vendor's reader trusts them.
    content = header([], version=version, symbols=[])
    for place in range(4):
        hostile = bytearray(content)
        start = 8 + 100 + 4 + 4 * place
        hostile[start : start + 4] = b"\xff\xff\xff\xff"
        with pytest.raises(DataError, match=r"damaged DBN header \(a list of .* goes beyond the end of the header"):
            in_memory(bytes(hostile))


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (16, b"\x63\x00", "unknown schema 99"),
        (42, b"\x63", "unknown kind of symbols 99"),
        (45, b"\x00\x00", "symbols of 0 bytes"),
        (45, b"\xff\xff", "symbols of 65535 bytes"),
        (100, b"\x01", "an embedded schema definition"),
    ],
)
def test_impossible_fields_are_refused(offset: int, value: bytes, what: str) -> None:
    hostile = bytearray(header([]))
    hostile[8 + offset : 8 + offset + len(value)] = value
    with pytest.raises(DataError, match=rf"damaged DBN header \({what}\)"):
        in_memory(bytes(hostile))


def test_other_bytes_are_no_header() -> None:
    with pytest.raises(DataError, match=r"es\.dbn: no DBN header"):
        in_memory(b"time,open")


def test_short_header_is_refused() -> None:
    with pytest.raises(DataError, match="99 bytes, at least 100 are needed"):
        in_memory(b"DBN\x03" + (99).to_bytes(4, "little") + bytes(99))


def test_impossible_days_are_refused(tmp_path: Path) -> None:
    content = header([mapped("ESH4", ("2024-01-02", "2024-01-05", 100))])
    turned = content.replace((20240105).to_bytes(4, "little"), (20240101).to_bytes(4, "little"))
    with pytest.raises(DataError, match="'ESH4' is mapped to 100 for days that end before they begin"):
        read_head(tmp_path, turned)
    with pytest.raises(DataError, match="damaged DBN header"):
        read_head(tmp_path, content.replace((20240105).to_bytes(4, "little"), (20241305).to_bytes(4, "little")))


def test_repeated_and_empty_intervals_are_passed_over(tmp_path: Path) -> None:
    twice = mapped("ESH4", (*ALWAYS, 100), (*ALWAYS, 100), ("2024-01-02", "2024-01-02", 7))
    assert len(read_head(tmp_path, header([twice])).mappings) == 1


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


def test_mapping_to_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"symbol 'ESH4' is mapped to 'x', which is no instrument id"):
        read_head(tmp_path, header([mapped("ESH4", (*ALWAYS, "x"))]))


def test_spans_follow_the_mappings(tmp_path: Path) -> None:
    found = spans(read_head(tmp_path, header(ES_PARENT)))
    assert next((span.label, span.first_day, span.end_day) for span in found) == ("ESH4", 10957, 47482)
