import dataclasses
import datetime
import hashlib
from pathlib import Path
from zoneinfo import ZoneInfo

import databento_dbn
import numpy as np
import pytest
import zstandard

from tidewalk.core.errors import ConfigError
from tidewalk.data.bars import BarTable, Loaded, validate
from tidewalk.data.calendar.sessions import schedule, session_columns
from tidewalk.data.contracts.rolls import FrontSeries, front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.load import DataConfig, load_bars
from tidewalk.data.sample import synthetic
from tidewalk.data.sample.synthetic import (
    KINDS,
    MARKET_EDGE_TICKS,
    PLANTED_MOVE_TICKS,
    SampleConfig,
    planted_mean_ticks_per_bar,
    true_edge_ticks_per_bar,
    write_sample,
)

EPOCH = datetime.date(1970, 1, 1)
DAY_NS = 86_400_000_000_000
MINUTE_NS = 60_000_000_000
TICK_E9 = 250_000_000
SPEC = spec_for("ES")


def decoded(file: Path) -> tuple[databento_dbn.Metadata, np.ndarray]:
    """Header and records, without the package's own reader."""
    raw = zstandard.ZstdDecompressor().decompress(file.read_bytes())
    size = 8 + int.from_bytes(raw[4:8], "little")
    return databento_dbn.Metadata.decode(raw), np.frombuffer(raw[size:], databento_dbn.OHLCVMsg._dtypes)


def read(files: list[Path]) -> Loaded:
    """Bar tables of all outrights, in order of expiry (the sample's ids are in that order)."""
    parts = [decoded(file) for file in files]
    records = np.concatenate([part for _, part in parts])
    names = {
        int(interval["symbol"]): symbol
        for metadata, _ in parts
        for symbol, intervals in metadata.mappings.items()
        for interval in intervals
    }
    tables = []
    for id_ in sorted(id_ for id_, name in names.items() if "-" not in name):
        rows = records[records["instrument_id"] == id_]
        ts_ns = rows["ts_event"].astype(np.int64)
        prices = {f"{name}_e9": rows[name].astype(np.int64) for name in ("open", "high", "low", "close")}
        tables.append(
            BarTable(
                contract=names[id_],
                instrument_id=id_,
                interval_ns=MINUTE_NS,
                ts_ns=ts_ns,
                known_ns=ts_ns + MINUTE_NS,
                volume=rows["volume"].astype(np.float64),
                has_volume=True,
                **prices,
            )
        )
    return Loaded("ES.FUT", "ES", "parent", tuple(tables), files=(), findings=(), fingerprint="")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """A year of each kind."""
    return {kind: write_sample(tmp_path_factory.mktemp(kind), SampleConfig(kind=kind, months=12)) for kind in KINDS}


@pytest.fixture(scope="module")
def tables(files) -> dict[str, Loaded]:
    return {kind: read(paths) for kind, paths in files.items()}


@pytest.fixture(scope="module")
def fronts(tables) -> dict[str, FrontSeries]:
    return {kind: front_series(loaded, SPEC) for kind, loaded in tables.items()}


def digests(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.mark.parametrize("kind", KINDS)
def test_same_configuration_gives_the_same_bytes_and_another_seed_does_not(kind, tmp_path):
    config = SampleConfig(kind=kind, months=2, seed=5)
    once, again = (write_sample(tmp_path / name, config) for name in ("once", "again"))
    assert digests(once) == digests(again)
    other = write_sample(tmp_path / "other", dataclasses.replace(config, seed=6))
    assert not set(digests(once)) & set(digests(other))


def test_every_field_of_the_configuration_matters(tmp_path):
    base = SampleConfig(kind="planted", months=1)
    changes = ({}, {"kind": "noise"}, {"kind": "market"}, {"signal_p": 0.6}, {"start": "2023-01"}, {"seed": 1})
    written = [write_sample(tmp_path / str(i), dataclasses.replace(base, **c))[0] for i, c in enumerate(changes)]
    assert len(set(digests(written))) == len(changes)


def test_one_file_per_month(files):
    for paths in files.values():
        assert [path.name for path in paths] == [f"es.fut_2022-{m:02}.ohlcv-1m.dbn.zst" for m in range(1, 13)]
        assert all(path.is_file() for path in paths)


def test_months_run_over_the_end_of_a_year(tmp_path):
    paths = write_sample(tmp_path, SampleConfig(months=3, start="2023-11"))
    assert [path.name[7:14] for path in paths] == ["2023-11", "2023-12", "2024-01"]


def test_yearly_files_hold_the_records_of_the_monthly_ones(tmp_path):
    config = SampleConfig(kind="noise", months=15, start="2022-11", volume=0.02)
    monthly = write_sample(tmp_path / "monthly", config)
    yearly = write_sample(tmp_path / "yearly", dataclasses.replace(config, files="year"))
    assert [path.name for path in yearly] == [f"es.fut_{year}.ohlcv-1m.dbn.zst" for year in (2022, 2023, 2024)]
    parts = [np.concatenate([decoded(path)[1] for path in paths]) for paths in (monthly, yearly)]
    np.testing.assert_array_equal(*parts)
    metadata, records = decoded(yearly[1])
    days = {symbol: intervals[0] for symbol, intervals in metadata.mappings.items()}
    assert days["ESH3"]["start_date"] == datetime.date(2023, 1, 2)
    assert days["ESH3"]["end_date"] == datetime.date(2023, 3, 18)
    assert metadata.end - MINUTE_NS == records["ts_event"][-1]


def test_years_stand_for_twelve_months(tmp_path):
    paths = write_sample(tmp_path, SampleConfig(kind="noise", years=1, files="year", volume=0.02))
    assert [path.name for path in paths] == ["es.fut_2022.ohlcv-1m.dbn.zst"]


def test_a_thin_market_has_the_same_prices_in_fewer_bars(tmp_path):
    whole, thin = (
        read(write_sample(tmp_path / str(volume), SampleConfig(months=2, volume=volume))).tables
        for volume in (1.0, 0.02)
    )
    sizes = [[table.ts_ns.size for table in tables] for tables in (whole, thin)]
    assert sizes[1][0] < 0.75 * sizes[0][0]
    assert sizes[1][1] < 0.25 * sizes[0][1]
    for full, part in zip(whole, thin, strict=True):
        place = np.searchsorted(full.ts_ns, part.ts_ns)
        np.testing.assert_array_equal(full.ts_ns[place], part.ts_ns)
        np.testing.assert_array_equal(full.close_e9[place], part.close_e9)
        assert part.volume.min() >= 1
    assert thin[0].volume.sum() == pytest.approx(0.02 * whole[0].volume.sum(), rel=0.1)


def test_instruments_are_forgotten_after_their_expiry(tmp_path, monkeypatch):
    held = []
    encoded = synthetic._encoded
    monkeypatch.setattr(synthetic, "_encoded", lambda live, *span: held.append(len(live)) or encoded(live, *span))
    write_sample(tmp_path, SampleConfig(kind="noise", months=18, volume=0.02))
    assert 5 <= max(held) <= 8  # three or four contracts and their spreads, of the eleven there are


@pytest.mark.slow
def test_codes_come_back_after_ten_years_and_the_loader_tells_them_apart(tmp_path):
    write_sample(tmp_path, SampleConfig(kind="noise", years=11, files="year", volume=0.005, start="2012-01"))
    loaded = load_bars(DataConfig(data_dir=tmp_path, symbol="ES.FUT"))
    names = [table.contract for table in loaded.tables]
    assert len(set(names)) == len(names) == 4 * 11 + 3
    assert {"ESH12", "ESH22"} <= set(names)
    front = front_series(loaded, SPEC)
    assert len(front.rolls) == 44
    assert all(roll.reason == "volume" for roll in front.rolls)


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_what_the_vendor_would_write(kind, files):
    for path in files[kind][:4]:
        metadata, records = decoded(path)
        assert (metadata.dataset, metadata.symbols) == ("GLBX.MDP3", ["ES.FUT"])
        assert (str(metadata.schema), str(metadata.stype_in), str(metadata.stype_out)) == (
            "ohlcv-1m",
            "parent",
            "instrument_id",
        )
        assert set(records["length"].tolist()) == {14}
        assert set(records["rtype"].tolist()) == {33}
        ts_ns, ids = records["ts_event"].astype(np.int64), records["instrument_id"]
        assert np.all(np.diff(ts_ns) >= 0)
        assert np.unique(np.stack([ts_ns, ids]), axis=1).shape[1] == records.size
        assert metadata.start <= ts_ns[0] < ts_ns[-1] == metadata.end - MINUTE_NS
        mapped = {int(i["symbol"]): i for intervals in metadata.mappings.values() for i in intervals}
        assert set(mapped) == set(ids.tolist())
        for id_, interval in mapped.items():
            days = ts_ns[ids == id_] // DAY_NS
            first, end = ((interval[name] - EPOCH).days for name in ("start_date", "end_date"))
            assert first <= days.min() <= days.max() < end


def test_the_vendors_own_decoder_reads_it(files):
    decoder = databento_dbn.DBNDecoder(compression=databento_dbn.Compression.from_str("zstd"))
    decoder.write(files["market"][0].read_bytes())
    messages = decoder.decode()
    assert isinstance(messages[0], databento_dbn.Metadata)
    assert len(messages) - 1 == decoded(files["market"][0])[1].size
    assert all(isinstance(message, databento_dbn.OHLCVMsg) for message in messages[1:])
    assert decoder.buffer() == b""


@pytest.mark.parametrize("kind", KINDS)
def test_the_loader_reads_it(kind, files, tables):
    loaded = load_bars(DataConfig(data_dir=files[kind][0].parent, symbol="ES.FUT"))
    assert (loaded.root, loaded.symbology) == ("ES", "parent")
    assert [t.contract for t in loaded.tables] == [t.contract for t in tables[kind].tables]
    for ours, theirs in zip(loaded.tables, tables[kind].tables, strict=True):
        for name in ("ts_ns", "open_e9", "high_e9", "low_e9", "close_e9", "volume"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert len(loaded.files) == 12
    assert all(file.rows_kept for file in loaded.files)


@pytest.mark.parametrize("kind", KINDS)
def test_bars_are_sound(kind, tables):
    for table in tables[kind].tables:
        validate(table)
        assert np.all(table.volume >= 1)
        assert table.low_e9.min() > 1000 * 10**9
        for name in ("open_e9", "high_e9", "low_e9", "close_e9"):
            assert not np.any(getattr(table, name) % TICK_E9)


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_follow_the_exchange(kind, fronts):
    front = fronts[kind]
    assert not np.any(session_columns(front.ts_ns, "cme-globex").is_outside)
    sessions = schedule(datetime.date(2022, 1, 1), datetime.date(2022, 12, 31), "cme-globex")
    days, first = np.unique(front.trade_day, return_index=True)
    np.testing.assert_array_equal(days, sessions.trade_day)
    np.testing.assert_array_equal(front.ts_ns[first], sessions.open_ns)
    last = np.append(first[1:], front.ts_ns.size) - 1
    np.testing.assert_array_equal(front.ts_ns[last], sessions.close_ns - MINUTE_NS)
    # Good Friday is shut, Thanksgiving closes at noon.
    assert (datetime.date(2022, 4, 15) - EPOCH).days not in days
    thanksgiving = front.minute_of_session[front.trade_day == (datetime.date(2022, 11, 24) - EPOCH).days]
    assert thanksgiving.max() == 19 * 60 - 1


def test_only_quiet_night_minutes_are_missing(fronts):
    assert np.all(np.diff(fronts["planted"].minute_of_session)[np.diff(fronts["planted"].trade_day) == 0] == 1)
    for kind in ("market", "noise"):
        present = np.bincount(fronts[kind].minute_of_session, minlength=1380)
        assert 0.9 < present[240:480].mean() / present[0] < 0.97
        assert present[840:1000].min() == present[0]
        assert present[:30].min() == present[0]


@pytest.mark.parametrize("kind", KINDS)
def test_contracts_are_listed_two_or_three_at_a_time_and_end_on_expiry_morning(kind, tables):
    chicago = ZoneInfo("America/Chicago")
    loaded = tables[kind]
    listed = 2 if kind == "planted" else 3
    assert [table.contract for table in loaded.tables] == ["ESH2", "ESM2", "ESU2", "ESZ2", "ESH3", "ESM3", "ESU3"][
        : 4 + listed
    ]
    for table, expiry in zip(loaded.tables, ["2022-03-18", "2022-06-17", "2022-09-16", "2022-12-16"], strict=False):
        last = datetime.datetime.fromtimestamp(int(table.ts_ns[-1]) // 10**9, chicago)
        assert f"{last:%Y-%m-%d}" == expiry
        assert last.time() < datetime.time(8, 30)
    assert max(len(decoded_names(loaded, day)) for day in (19_000, 19_100, 19_200, 19_300)) == listed


def decoded_names(loaded: Loaded, day: int) -> set[str]:
    return {table.contract for table in loaded.tables if np.any(table.ts_ns // DAY_NS == day)}


def test_volume_moves_from_contract_to_contract_once_and_rolls_follow_it(fronts):
    for front in fronts.values():
        assert front.contracts == ("ESH2", "ESM2", "ESU2", "ESZ2", "ESH3")
        dates = [EPOCH + datetime.timedelta(days=roll.trade_day) for roll in front.rolls]
        # Tuesdays of the weeks of expiry: the new contract has the most volume from Monday on.
        assert dates == [datetime.date(2022, *day) for day in ((3, 15), (6, 14), (9, 13), (12, 13))]
        assert all(roll.reason == "volume" and roll.to_volume > roll.from_volume > 0 for roll in front.rolls)
        basis = [(roll.entry_e9 - roll.exit_e9) / 10**9 for roll in front.rolls]
        assert all(10.0 <= points <= 50.0 for points in basis)
        assert front.warnings == ()


@pytest.mark.parametrize("kind", KINDS)
def test_outrights_differ_by_a_constant_basis(kind, tables):
    first, second = tables[kind].tables[:2]
    _, at, also_at = np.intersect1d(first.ts_ns, second.ts_ns, return_indices=True)
    assert at.size > 10_000
    assert np.unique(second.close_e9[also_at] - first.close_e9[at]).size == 1


def test_spreads_are_there_with_their_own_ids_and_prices(files, fronts):
    metadata, records = decoded(files["market"][2])  # March: a roll
    spreads = {name: int(i[0]["symbol"]) for name, i in metadata.mappings.items() if "-" in name}
    assert set(spreads) == {"ESH2-ESM2", "ESM2-ESU2"}
    rows = records[records["instrument_id"] == spreads["ESH2-ESM2"]]
    basis_e9 = fronts["market"].rolls[0].entry_e9 - fronts["market"].rolls[0].exit_e9
    assert rows.size > 1000
    assert np.all(np.abs(rows["close"] - basis_e9) <= 50_000_000)
    assert np.all(rows["close"] % 50_000_000 == 0)
    assert np.any(rows["close"] % TICK_E9 != 0)  # the tick of spreads is finer
    assert np.all((rows["high"] >= rows["open"]) & (rows["low"] <= rows["close"]) & (rows["volume"] > 0))


def test_planted_moves_are_a_sign_chain_without_gaps(tables):
    for table in tables["planted"].tables:
        np.testing.assert_array_equal(table.open_e9[1:], table.close_e9[:-1])
        move = (table.close_e9 - table.open_e9) // TICK_E9
        assert set(np.abs(move).tolist()) == {PLANTED_MOVE_TICKS}
        np.testing.assert_array_equal(table.high_e9, np.maximum(table.open_e9, table.close_e9))
        np.testing.assert_array_equal(table.low_e9, np.minimum(table.open_e9, table.close_e9))
        same = np.mean(np.sign(move[1:]) == np.sign(move[:-1]))
        assert abs(same - 0.7) < 4 * np.sqrt(0.21 / move.size)


@pytest.mark.parametrize("signal_p", [0.0, 0.3, 0.95, 1.0])
def test_planted_persistence_is_as_asked_and_prices_stay_far_from_zero(signal_p, tmp_path):
    table = read(write_sample(tmp_path, SampleConfig(kind="planted", months=6, signal_p=signal_p))).tables[0]
    move = np.sign(table.close_e9 - table.open_e9)
    assert abs(np.mean(move[1:] == move[:-1]) - signal_p) <= 4 * np.sqrt(signal_p * (1 - signal_p) / move.size)
    assert table.low_e9.min() >= 1000 * 10**9


def follow_ticks(front: FrontSeries, cost_ticks: float) -> np.ndarray:
    """Net ticks per bar of the policy that holds the last bar's direction, decided at the close of bar t.

    The order fills at the open of t+1 of the contract of that bar, and is held until the open of t+2.
    """
    sign = np.sign(front.close_e9 - front.close_prev_e9)[:-2]
    move = (front.exit_open_e9[2:] - front.open_e9[1:-1]) / TICK_E9
    return sign * move - cost_ticks * np.abs(np.diff(sign, prepend=0))


def test_following_the_planted_signal_earns_the_closed_form(fronts):
    # P = 0.7: gross 0.40 moves per bar; at a cost of 0.1 move per side 0.34, that is 3.4 ticks.
    assert planted_mean_ticks_per_bar(0.7, 1.0) == pytest.approx(3.4)
    assert planted_mean_ticks_per_bar(0.7, 0.0) == pytest.approx(4.0)
    assert planted_mean_ticks_per_bar(0.3, 1.0) == pytest.approx(2.6)
    assert planted_mean_ticks_per_bar(0.7, 2 / 3 * PLANTED_MOVE_TICKS) == pytest.approx(0.0)
    assert planted_mean_ticks_per_bar(0.5, 0.1) == 0.0
    for cost in (0.0, 1.0, 2.5):
        net = follow_ticks(fronts["planted"], cost)
        # Successive bars of a sign chain are dependent: the variance of the mean is (1 + rho) / (1 - rho) larger.
        error = net.std() / np.sqrt(net.size) * np.sqrt(1.4 / 0.6)
        assert abs(net.mean() - planted_mean_ticks_per_bar(0.7, cost)) < 4 * error
        assert error < 0.05


def test_noise_cannot_be_predicted(fronts):
    front = fronts["noise"]
    move = (front.close_e9 - front.close_prev_e9) / TICK_E9
    assert abs(move.mean()) < 4 * move.std() / np.sqrt(move.size)
    rules = {lag: np.sign(move[:-lag]) * move[lag:] for lag in (1, 2, 3, 5, 10, 60)}
    rules["edge of the market kind"] = (np.sign(true_edge_ticks_per_bar(move.astype(np.int64))) * np.roll(move, -1))[
        :-1
    ]
    rules["close against range"] = (np.sign(2 * front.close_e9 - front.high_e9 - front.low_e9) * np.roll(move, -1))[:-1]
    for name, gain in rules.items():
        assert abs(gain.mean()) < 4 * gain.std() / np.sqrt(gain.size), name
    assert abs(follow_ticks(front, 0.0).mean()) < 0.05


def test_market_has_the_stated_edge(fronts):
    front = fronts["market"]
    move = (front.close_e9 - front.close_prev_e9) // TICK_E9
    gain = (np.sign(true_edge_ticks_per_bar(move)) * np.roll(move, -1))[:-1]
    error = gain.std() / np.sqrt(gain.size)
    assert abs(gain.mean() - MARKET_EDGE_TICKS) < 4 * error
    assert gain.mean() > 4 * error
    assert move.std() > 45 * MARKET_EDGE_TICKS  # weak: a small part of one bar's move


def test_market_and_noise_look_like_a_market(fronts):
    for kind in ("market", "noise"):
        front = fronts[kind]
        move = (front.close_e9 - front.close_prev_e9) / TICK_E9
        assert 2.0 < move.std() < 4.0
        assert ((move - move.mean()) ** 4).mean() / move.var() ** 2 > 6.0  # fat tails
        size = np.abs(move)
        usual = np.bincount(front.minute_of_session, size) / np.bincount(front.minute_of_session)
        assert usual[930] > 1.5 * usual[1100] < 1.2 * usual[1319]  # the smile of the US day
        assert usual[1100] > 1.5 * usual[300]
        rest = size / usual[front.minute_of_session]
        assert np.corrcoef(rest[:-10], rest[10:])[0, 1] > 0.05  # clusters beyond the time of day
        daily = [rest[front.trade_day == day].mean() for day in np.unique(front.trade_day)]
        assert np.corrcoef(daily[:-1], daily[1:])[0, 1] > 0.5  # quiet and wild weeks
        inside = np.diff(front.trade_day, prepend=0) == 0
        same_open = np.mean((front.open_e9 == front.close_prev_e9)[inside])
        assert 0.75 < same_open < 0.9
        assert np.max(np.abs(front.open_e9 - front.close_prev_e9)[inside]) <= 60 * TICK_E9
        volume = np.bincount(front.trade_day - front.trade_day[0], front.volume)
        assert 800_000 < np.median(volume[volume > 0]) < 2_500_000


def test_market_and_noise_share_all_but_the_drift(fronts):
    market, noise = fronts["market"], fronts["noise"]
    np.testing.assert_array_equal(market.ts_ns, noise.ts_ns)
    np.testing.assert_array_equal(market.volume, noise.volume)


def test_two_years_have_eight_rolls(tmp_path):
    loaded = read(write_sample(tmp_path, SampleConfig(kind="noise", months=24, seed=3)))
    front = front_series(loaded, SPEC)
    assert len(front.rolls) == 8
    assert 650_000 < front.ts_ns.size < 710_000


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"kind": "planned"}, ("--kind 'planned'", "did you mean planted?", "market, planted, noise")),
        ({"months": 0}, ("--months 0", "1 to 240")),
        ({"months": 241}, ("--months 241", "1 to 240")),
        ({"seed": -1}, ("--seed -1",)),
        ({"signal_p": 1.5}, ("--signal-p 1.5", "between 0 and 1")),
        ({"signal_p": float("nan")}, ("--signal-p nan",)),
        ({"start": "2022-13"}, ("--start '2022-13'", "YYYY-MM")),
        ({"start": "2022"}, ("--start '2022'",)),
        ({"start": "1999-01"}, ("--start '1999-01'", "2000-01")),
        ({"years": 0}, ("--years 0", "1 to 20")),
        ({"years": 21}, ("--years 21", "1 to 20")),
        ({"files": "week"}, ("--files 'week'", "month or year")),
        ({"volume": 0.0}, ("--volume 0.0", "above 0")),
        ({"volume": float("nan")}, ("--volume nan",)),
    ],
)
def test_unusable_configurations_are_refused(values, facts, tmp_path):
    config = SampleConfig(months=1)
    for name, value in values.items():
        object.__setattr__(config, name, value)  # past the type check of the test bench
    with pytest.raises(ConfigError) as caught:
        write_sample(tmp_path / "out", config)
    assert all(fact in str(caught.value) for fact in facts)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_months_is_refused_and_the_same_sample_is_written_again(tmp_path):
    write_sample(tmp_path, SampleConfig(months=2))
    write_sample(tmp_path, SampleConfig(months=2))
    with pytest.raises(ConfigError, match=r"already holds es\.fut_2022-02.*choose an empty folder"):
        write_sample(tmp_path, SampleConfig(months=1))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ConfigError, match="is a file: name a folder"):
        write_sample(tmp_path / "out", SampleConfig(months=1))
