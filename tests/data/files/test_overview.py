"""What each file holds, before a symbol is named."""

import pytest

from data.market_files import ES_PARENT, bar, bars, csv_text, dbn, mapped, put, zst
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.files.overview import overview, symbols_to_ask_for

MINUTE_NS = 60 * 10**9


def test_a_dbn_file_is_counted_over_all_its_instruments(tmp_path):
    put(tmp_path, "es.dbn.zst", zst(dbn([*bars(100, 3), *bars(200, 2)])))
    (entry,) = overview(tmp_path)
    assert (entry.kind, entry.schema, entry.rows) == ("dbn v3 zstd", "ohlcv-1m", 5)
    assert entry.last_ns is not None
    assert entry.first_ns is not None
    assert entry.last_ns - entry.first_ns == 2 * MINUTE_NS
    assert entry.problem is None


def test_a_file_that_was_cut_off_says_so_and_shows_what_is_left(tmp_path):
    put(tmp_path, "es.dbn", dbn(bars(100, 9))[:-1])
    (entry,) = overview(tmp_path)
    assert entry.rows == 8
    assert [(finding.defect, finding.is_warning) for finding in entry.findings] == [("truncated-records", True)]


def test_every_file_is_listed_also_one_that_cannot_be_read(tmp_path):
    put(tmp_path, "a.csv", csv_text(7))
    put(tmp_path, "b.csv", "time,last\n1,2\n")
    put(tmp_path, "c.dbn.zst", b"\x28\xb5\x2f\xfd broken")
    by_name = {entry.file: entry for entry in overview(tmp_path)}
    assert by_name["a.csv"].rows == 7
    assert by_name["a.csv"].stamps == "utc"
    assert by_name["b.csv"].rows is None
    assert "missing" in str(by_name["b.csv"].problem)
    assert by_name["c.dbn.zst"].problem


def test_symbols_are_offered_as_parents_first_and_spreads_never(tmp_path):
    mappings = (*ES_PARENT, mapped("NQ.c.0", ("2024-01-01", "2024-12-31", 900)))
    put(tmp_path, "es.dbn", dbn([bar(100, MINUTE_NS * 28_000_000)], mappings))
    assert symbols_to_ask_for(overview(tmp_path)) == ("ES.FUT", "NQ.c.0")


def test_a_wrong_path_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        overview(tmp_path / "none")
    with pytest.raises(DataError, match="holds no files"):
        overview(tmp_path)
