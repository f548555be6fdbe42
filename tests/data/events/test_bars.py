"""Bars out of files of trades and quotes, as `load_bars` gives them."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.market_files import (
    ES_PARENT,
    HOUR_NS,
    MINUTE_NS,
    SNAPSHOT,
    START,
    dbn,
    in_order,
    load,
    ns,
    put,
    quoted_trades,
    quotes,
    stream,
    trades,
    zst,
)
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import Loaded
from tidewalk.data.load import DataConfig, load_bars

HOUR_LATER = START + 60 * MINUTE_NS


def sizes(loaded: Loaded) -> dict[str, int]:
    return {table.contract: len(table.ts_ns) for table in loaded.tables}


def some_trades(instrument_id: int, count: int, step_ns: int = 7 * 10**9, start_ns: int = START) -> np.ndarray:
    rows = [(start_ns + i * step_ns, 4800 + (i * i) % 11 / 4, 1 + i % 3) for i in range(count)]
    return trades(instrument_id, rows)


def test_real_trades_make_the_vendors_own_bars(shared_data: Path) -> None:
    # Databento cut the same minutes of ESU4 itself: golden values by the vendor.
    folder = shared_data / "dbn"
    made = load(folder / "glbx_esu4_2024-07-01.trades.dbn.zst").tables[0]
    theirs = load(folder / "glbx_esu4-nqu4_2024-07-01.ohlcv-1m.dbn.zst").tables[0]
    place = np.searchsorted(theirs.ts_ns, made.ts_ns)
    assert len(made.ts_ns) == 4
    for name in ("ts_ns", "known_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume"):
        assert np.array_equal(getattr(made, name), getattr(theirs, name)[place]), name


def test_spreads_and_other_instruments_never_enter_a_bar(tmp_path: Path) -> None:
    records = in_order(some_trades(100, 60), trades(300, [(START + 5, 55.0, 9)]), some_trades(200, 40))
    loaded = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER)))
    assert sizes(loaded) == {"ESH4": 7, "ESM4": 5}
    assert all(table.low_e9.min() >= 4800 * 10**9 for table in loaded.tables)
    assert (
        "left out beside the 2 outright contracts of ES: 1 spreads or combinations and 0 other instruments, 1 rows"
        in (loaded.notes)
    )
    assert "trades holds no bars: bars of 1m are made of it; choose others with --bars" in loaded.notes
    assert any(note.startswith("bars of 60 s cut from 100 trades (trades, by ts_recv)") for note in loaded.notes)


def test_bars_are_cut_by_the_time_of_receipt(tmp_path: Path) -> None:
    records = trades(100, [(START + MINUTE_NS + 100_000, 4800.0, 1), (START + 2 * MINUTE_NS, 4801.0, 1)])
    assert records["ts_event"][0] < START + MINUTE_NS
    table = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER))).tables[0]
    assert table.ts_ns[0] == START + MINUTE_NS


SPLITS = st.lists(st.integers(0, 90), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPLITS, st.sampled_from(["1m", "5m", "tick:7", "volume:20", "dollar:1000000"]), st.randoms(), st.booleans())
def test_any_split_order_and_name_of_files_gives_the_same_bars(
    tmp_path_factory: pytest.TempPathFactory,
    cuts: list[int],
    rule: str,
    order,
    compressed: bool,  # noqa: FBT001
) -> None:
    records = in_order(some_trades(100, 60), some_trades(200, 31))
    whole, parts = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("parts")
    put(whole, "es.dbn", stream(records, "trades", end=HOUR_LATER))
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    pieces = [records[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    names = [f"{letter}.dbn" for letter in "abcdef"[: len(pieces)]]
    order.shuffle(names)
    for number, (name, piece) in enumerate(zip(names, pieces, strict=True)):
        start_ns = int(piece["ts_recv"][0]) if number else 0
        end_ns = int(pieces[number + 1]["ts_recv"][0]) if number + 1 < len(pieces) else HOUR_LATER
        content = stream(piece, "trades", start=start_ns, end=max(end_ns, int(piece["ts_recv"][-1]) + 1))
        put(parts, name, zst(content) if compressed else content)
    one, other = load(whole, bars=rule), load(parts, bars=rule)
    assert one.fingerprint == other.fingerprint


def test_a_file_that_is_there_twice_changes_nothing(tmp_path: Path) -> None:
    content = stream(some_trades(100, 60), "trades", end=HOUR_LATER)
    once = load(put(tmp_path, "a.dbn", content), bars="tick:7").fingerprint
    put(tmp_path, "b.dbn.zst", zst(content))
    loaded = load(tmp_path, bars="tick:7")
    assert loaded.fingerprint == once
    assert "trades dropped because an earlier file holds the same stretch: 60" in loaded.notes


def test_files_that_overlap_and_agree_are_joined(tmp_path: Path) -> None:
    records = some_trades(100, 90)
    once = load(put(tmp_path, "whole.dbn", stream(records, "trades", end=HOUR_LATER)))
    (tmp_path / "whole.dbn").unlink()
    for name, part in (("z", records[:50]), ("a", records[30:70]), ("m", records[45:])):
        put(tmp_path, f"{name}.dbn", stream(part, "trades", end=HOUR_LATER))
    loaded = load(tmp_path)
    assert loaded.fingerprint == once.fingerprint
    assert any(finding.defect == "overlapping-files" and finding.count == 45 for finding in loaded.findings)


def test_contracts_may_follow_each_other_in_another_order_than_files(tmp_path: Path) -> None:
    # The file that begins first holds the later part of ESM4.
    early, late = some_trades(200, 20), some_trades(200, 20, start_ns=START + 30 * MINUTE_NS)
    whole = load(put(tmp_path, "whole.dbn", stream(in_order(some_trades(100, 30), early, late), "trades")))
    (tmp_path / "whole.dbn").unlink()
    put(tmp_path, "a.dbn", stream(in_order(some_trades(100, 30), late), "trades"))
    put(tmp_path, "b.dbn", stream(early, "trades"))
    parts = load(tmp_path)
    assert sizes(parts) == sizes(whole)
    assert parts.fingerprint == whole.fingerprint


def test_files_that_overlap_and_differ_are_refused(tmp_path: Path) -> None:
    records = some_trades(100, 90)
    put(tmp_path, "a.dbn", stream(records[:60], "trades"))
    changed = records[40:].copy()
    changed["size"][3] += 1
    put(tmp_path, "b.dbn", stream(changed, "trades"))
    with pytest.raises(
        DataError, match=r"a\.dbn and b\.dbn: overlapping files that differ .* first at 2024-01-02 15:05:01 UTC"
    ):
        load(tmp_path)
    (tmp_path / "b.dbn").unlink()
    put(tmp_path, "c.dbn", stream(np.delete(records[40:], 5), "trades"))
    with pytest.raises(DataError, match=r"a\.dbn and c\.dbn: overlapping files that differ"):
        load(tmp_path)


def test_a_request_that_hit_its_limit_leaves_the_last_bar_unfinished(tmp_path: Path) -> None:
    records = some_trades(100, 20)
    full = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER)))
    cut = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER, limit=20)))
    assert (sizes(full), sizes(cut)) == ({"ESH4": 3}, {"ESH4": 2})
    assert "last bars dropped because the data end before they do: 1" in cut.notes


def test_a_hole_between_files_finishes_no_bar(tmp_path: Path) -> None:
    # The first file stops inside its third minute; the next one starts two hours later.
    later = START + 120 * MINUTE_NS
    put(tmp_path, "a.dbn", stream(some_trades(100, 20), "trades", end=START + 140 * 10**9))
    put(tmp_path, "b.dbn", stream(some_trades(100, 20, start_ns=later), "trades", start=later, end=later + HOUR_NS))
    assert sizes(load(tmp_path)) == {"ESH4": 5}
    with pytest.raises(DataError, match=r"a\.dbn, b\.dbn: 40 events, and not one bar of tick:30 is complete"):
        load(tmp_path, bars="tick:30")


def test_files_that_do_not_say_where_they_end_continue_each_other(tmp_path: Path) -> None:
    records = some_trades(100, 40)
    put(tmp_path, "a.dbn", stream(records[:20], "trades"))
    put(tmp_path, "b.dbn", stream(records[20:], "trades"))
    table = load(tmp_path).tables[0]
    assert table.volume.sum() == records["size"][records["ts_recv"] < START + 4 * MINUTE_NS].sum()


def test_out_of_order_records_are_sorted_and_said(tmp_path: Path) -> None:
    records = some_trades(100, 30)
    straight = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER)))
    mixed = load(put(tmp_path, "es.dbn", stream(records[::-1].copy(), "trades", end=HOUR_LATER)))
    assert mixed.fingerprint == straight.fingerprint
    assert any(finding.defect == "out-of-order" and finding.count == 29 for finding in mixed.findings)


def test_snapshots_and_trades_without_price_are_left_out_and_counted(tmp_path: Path) -> None:
    records = in_order(trades(100, [(START, 1.0, 1)], flags=SNAPSHOT), some_trades(100, 30))
    records["size"][9] = 0
    loaded = load(put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER)))
    assert loaded.tables[0].low_e9.min() >= 4800 * 10**9
    assert "es.dbn: snapshot records, which are no trades: 1 left out" in loaded.notes
    assert "es.dbn: trades of no size: 1 left out" in loaded.notes


def test_a_cut_off_file_is_refused_or_used_as_far_as_it_goes(tmp_path: Path) -> None:
    path = put(tmp_path, "es.dbn", stream(some_trades(100, 60), "trades", end=HOUR_LATER)[:-5])
    with pytest.raises(DataError, match=r"es\.dbn: the file ends 43 bytes into record 60.*--allow-truncated"):
        load(path)
    loaded = load_bars(DataConfig(path, "ES.FUT", allow_truncated=True))
    assert sizes(loaded) == {"ESH4": 6}
    assert any(finding.defect == "truncated-records" for finding in loaded.findings)


def test_longer_bars_are_made_within_sessions(tmp_path: Path) -> None:
    # Globex is shut from 22:00 to 23:00 UTC.
    stamps = [ns(text) for text in ("2024-01-02 20:30", "2024-01-02 21:59", "2024-01-02 23:00", "2024-01-03 01:00")]
    records = trades(100, [(stamp, 4800.0 + i, 1) for i, stamp in enumerate(stamps)])
    path = put(tmp_path, "es.dbn", stream(records, "trades", end=ns("2024-01-04")))
    assert load(path, bars="4h").tables[0].volume.tolist() == [2, 2]
    day = load(path, bars="1d").tables[0]
    assert (day.ts_ns == [ns("2024-01-01 23:00"), ns("2024-01-02 23:00")]).all()


def test_dollar_bars_take_the_multiplier_of_the_contract(tmp_path: Path) -> None:
    # 4800 x 50 = 240,000 per contract.
    records = trades(100, [(START + i, 4800.0, 1) for i in range(12)])
    path = put(tmp_path, "es.dbn", stream(records, "trades", end=HOUR_LATER))
    assert load(path, bars="dollar:1200000").tables[0].volume.tolist() == [5, 5]
    odd = (ES_PARENT[0].__class__("XXH4", ES_PARENT[0].intervals),)
    path = put(tmp_path, "xx.dbn", stream(records, "trades", odd, end=HOUR_LATER))
    with pytest.raises(DataError, match=r"--bars dollar:1200000: needs the multiplier of XX, and it is not known"):
        load(path, "XXH4", bars="dollar:1200000")


# --- quotes


def test_sampled_quotes_make_bars_of_mid_and_spread(tmp_path: Path) -> None:
    rows = [(START + i * MINUTE_NS, 4800.0 + i, 4800.25 + i) for i in range(5)]
    rows[3] = (rows[3][0], 4803.0, 4804.0)
    loaded = load(put(tmp_path, "es.dbn", stream(quotes(100, rows), "bbo-1m", end=HOUR_LATER)))
    table = loaded.tables[0]
    assert (table.ts_ns == [row[0] for row in rows]).all()
    assert (table.close_e9 / 1e9).tolist() == [4800.125, 4801.125, 4802.125, 4803.5, 4804.125]
    assert table.open_spread_e9 is not None
    assert (table.open_spread_e9 / 1e9).tolist() == [0.25, 0.25, 0.25, 1.0, 0.25]
    assert not table.has_volume
    assert any("a mid lies half a tick off the grid" in note for note in loaded.notes)
    with pytest.raises(ConfigError, match="--bars tick:5: bbo-1m holds no trades; ask for time bars"):
        load(tmp_path, bars="tick:5")


def test_seconds_of_quotes_make_minutes(tmp_path: Path) -> None:
    rows = [(START + i * 10**9, 4800.0 + i % 7, 4800.25 + i % 7) for i in range(180)]
    table = load(put(tmp_path, "es.dbn", stream(quotes(100, rows, "bbo-1s"), "bbo-1s", end=HOUR_LATER))).tables[0]
    assert (table.high_e9 / 1e9).tolist() == [4806.125] * 3
    assert table.ts_ns.tolist() == [START, START + MINUTE_NS, START + 2 * MINUTE_NS]


def test_a_book_gives_mids_with_the_volume_of_its_trades_or_bars_of_trades(tmp_path: Path) -> None:
    records = in_order(
        quotes(100, [(START + i * 10**9, 4800.0, 4800.5) for i in range(100)], "mbp-1"),
        quoted_trades(100, [(START + i * 10**9 + 5, 4800.5, 2, 4800.0, 4800.5) for i in range(50)]),
    )
    path = put(tmp_path, "es.dbn", stream(records, "mbp-1", end=HOUR_LATER))
    mids = load(path, bars="1m").tables[0]
    assert set(mids.close_e9.tolist()) == {4_800_250_000_000}
    assert mids.volume.tolist() == [100, 0]
    counted = load(path, bars="tick:10").tables[0]
    assert set(counted.close_e9.tolist()) == {4_800_500_000_000}
    assert counted.volume.tolist() == [20] * 5
    assert counted.open_spread_e9 is not None
    assert set(counted.open_spread_e9.tolist()) == {500_000_000}


def test_trades_with_their_quotes_make_bars_of_trades_with_a_spread(tmp_path: Path) -> None:
    rows = [(START + i * 20 * 10**9, 4800.25, 1, 4800.0, 4800.25 + (i % 2) / 4) for i in range(9)]
    table = load(put(tmp_path, "es.dbn", stream(quoted_trades(100, rows), "tbbo", end=HOUR_LATER))).tables[0]
    assert set(table.close_e9.tolist()) == {4_800_250_000_000}
    assert table.open_spread_e9 is not None
    assert (table.open_spread_e9 / 1e9).tolist() == [0.25, 0.5, 0.25]


def test_files_of_bars_can_be_made_longer(tmp_path: Path) -> None:
    rows = [(100, START + i * MINUTE_NS, 4800.0 + i, 10) for i in range(120)]
    path = put(tmp_path, "es.dbn", dbn(rows))
    hours = load(path, bars="1h").tables[0]
    assert hours.volume.tolist() == [600, 600]
    assert (hours.low_e9 / 1e9).tolist() == [4799.0, 4859.0]
    with pytest.raises(DataError, match="--bars tick:100: needs files of trades; the files hold bars of 60 s"):
        load(path, bars="tick:100")
    with pytest.raises(ConfigError, match="--bars weekly: not understood"):
        load(path, bars="weekly")
