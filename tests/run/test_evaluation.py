"""A finished run read back and traded again: the same result, or a refusal that says what is not as it was."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from finished import copy_of_run, finished_run
from support import as_nq, chain_market, planted_market, planted_signs, small_config
from tidewalk.core.errors import ConfigError, DataError, StoreError
from tidewalk.data.load import DataConfig
from tidewalk.market.device import save_market
from tidewalk.market.prepare import SeriesConfig
from tidewalk.run import evaluation
from tidewalk.run.evaluation import Reload, compare, reload
from tidewalk.run.outcome import settle
from tidewalk.store import checkpoint, layout, results


def rehashed(path: Path) -> Path:
    """The run with a manifest that vouches for its files as they are now."""
    layout.finish_manifest(layout.open_run(path), "complete")
    return path


def differences(path: Path) -> list[str]:
    reloaded = reload(path, Reload())
    return list(compare(reloaded, settle(reloaded.stage, reloaded.kept)).differences)


def test_a_run_traded_again_makes_what_is_on_record():
    reloaded = reload(finished_run(), Reload())
    found = compare(reloaded, settle(reloaded.stage, reloaded.kept))
    assert found.differences == ()
    tables = [results.read_equity, results.read_fills, results.read_trades]
    assert found.compared > sum(read(reloaded.run).height for read in tables) + 100
    assert reloaded.origin == (0, 1, 2)
    counted = reloaded.stage.transfers
    assert counted.uploads == 1
    policies = sum(file.stat().st_size for file in (finished_run() / "policies").iterdir())
    assert 0 < counted.bytes_h2d - counted.bytes_market < policies


def test_other_weights_under_the_same_name_are_seen_in_the_result(tmp_path):
    path = copy_of_run(tmp_path)
    policies = [path / "policies" / f"window-01-seed-0{seed}.safetensors" for seed in (0, 1)]
    for policy in policies:
        arrays, meta = checkpoint.load_policy(policy)
        checkpoint.save_policy(policy.parent, policy.stem, {name: -value for name, value in arrays.items()}, meta)
    found = differences(rehashed(path))
    assert any(text.startswith("oos.net_usd is ") for text in found)
    assert any(text.startswith("per_window[1].seeds_net_usd[0] is ") for text in found)
    assert any(text.startswith("fills.parquet") for text in found)
    assert not any("per_window[0]" in text for text in found)


def test_a_cent_in_the_summary_is_seen(tmp_path):
    path = copy_of_run(tmp_path)
    summary = json.loads((path / "summary.json").read_text())
    summary["oracle"]["net_usd"] += 0.01
    (path / "summary.json").write_text(json.dumps(summary))
    found = differences(rehashed(path))
    assert len(found) == 1
    assert found[0].startswith("oracle.net_usd is ")


@pytest.mark.parametrize("name", ["policies/window-00-seed-01.safetensors", "equity.parquet", "summary.json"])
def test_a_file_that_is_not_what_the_run_wrote_is_refused_by_name(name, tmp_path):
    path = copy_of_run(tmp_path)
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(StoreError, match=f"{name}: not what the run wrote"):
        reload(path, Reload())
    (path / name).unlink()
    with pytest.raises(StoreError, match=f"{name}: missing"):
        reload(path, Reload())


def test_policies_that_changed_places_are_refused(tmp_path):
    path = copy_of_run(tmp_path)
    first, second = (path / "policies" / f"window-0{window}-seed-00.safetensors" for window in (0, 1))
    first.write_bytes(second.read_bytes())
    with pytest.raises(StoreError, match=r"window-00-seed-00.safetensors: holds the policy of window 1, seed 0"):
        reload(rehashed(path), Reload())


def test_other_settings_are_refused_and_told(tmp_path):
    path = copy_of_run(tmp_path)
    text = (path / "run.toml").read_text()
    (path / "run.toml").write_text(text.replace("slippage_ticks = 0.5", "slippage_ticks = 0.25"))
    with pytest.raises(StoreError, match=r"costs.slippage_ticks 0.5 -> 0.25"):
        reload(rehashed(path), Reload())


def test_a_run_without_policies_is_refused(tmp_path):
    path = copy_of_run(tmp_path)
    layout.finish_manifest(layout.open_run(path), "interrupted")
    with pytest.raises(StoreError, match=r"the run is interrupted.*tidewalk resume"):
        reload(path, Reload())


def test_data_that_moved_are_found_and_other_data_are_refused(tmp_path):
    save_market(tmp_path / "moved.npz", planted_market(days=182))
    assert reload(finished_run(), Reload(data_dir=tmp_path / "moved.npz")).origin == (0, 1, 2)
    save_market(tmp_path / "other.npz", planted_market(days=182, seed=4))
    with pytest.raises(StoreError, match=r"not the data of the run.*--other-data"):
        reload(finished_run(), Reload(data_dir=tmp_path / "other.npz"))


@pytest.mark.slow
def test_later_data_are_traded_by_the_newest_policy_that_saw_none_of_them(tmp_path):
    """One month more than the run had: the new window goes to the last policy, with its own scaler."""
    save_market(tmp_path / "longer.npz", chain_market(planted_signs(213 * 24, 0.7, seed=3), 10, 24))
    reloaded = reload(finished_run(), Reload(data_dir=tmp_path / "longer.npz", other_data=True))
    assert reloaded.origin == (0, 1, 2, 2)
    first, last = reload(finished_run(), Reload()), reloaded
    ours, theirs = first.stage.study.windows, last.stage.study.windows
    assert np.array_equal(theirs.center, ours.center[[0, 1, 2, 2]])
    assert np.array_equal(theirs.scale, ours.scale[[0, 1, 2, 2]])
    settled = settle(reloaded.stage, reloaded.kept)
    assert [len(settled.books[name]) for name in ("ensemble", "seed 1", "long")] == [4, 4, 4]
    assert all(account.sides.any() for account in settled.books["ensemble"])


def test_months_that_a_policy_has_seen_are_never_traded(tmp_path, monkeypatch):
    """The same months: each window to its own policy. A month earlier: to the one before, and the first to none."""
    saved = results.read_windows(layout.open_run(finished_run()))
    shifted = json.loads(json.dumps(saved))
    for row in shifted["windows"]:  # as if every policy had been trained a month later
        month = int(row["val"]["last"][5:7]) + 1
        row["val"]["last"] = f"2024-{month:02d}-28"
    monkeypatch.setattr(results, "read_windows", lambda _: shifted)
    reloaded = reload(finished_run(), Reload(other_data=True))
    assert reloaded.origin == (0, 1)
    assert [str(w.test.first_day) for leg in reloaded.stage.study.legs for w in leg.plan.windows] == [
        row["test"]["first"] for row in saved["windows"][1:]
    ]
    assert "bar: 1 window." in reloaded.notes[0]
    settled = settle(reloaded.stage, reloaded.kept)
    assert settled.study.num_windows == 2
    for row in shifted["windows"]:
        row["val"]["last"] = "2025-01-01"
    with pytest.raises(DataError, match=r"no test month of ES\.FUT begins after 2025-01-01"):
        reload(finished_run(), Reload(other_data=True))


def test_another_symbol_can_be_traded_and_other_features_cannot(tmp_path):
    save_market(tmp_path / "nq.npz", as_nq(planted_market(days=182, seed=2)))
    how = Reload(data_dir=tmp_path / "nq.npz", other_data=True, symbol="NQ.FUT")
    assert reload(finished_run(), how).stage.study.symbol == "NQ.FUT"
    with pytest.raises(ConfigError, match="needs --other-data"):
        reload(finished_run(), dataclasses.replace(how, other_data=False))
    market = planted_market(days=182)
    names = dataclasses.replace(market.info, feature_names=("f0", "f1", "f2", "mine"))
    save_market(tmp_path / "mine.npz", dataclasses.replace(market, info=names))
    with pytest.raises(DataError, match=r"other features than window-00-seed-00.*f3, mine"):
        reload(finished_run(), Reload(data_dir=tmp_path / "mine.npz", other_data=True))


def test_settings_that_describe_the_own_files_or_contracts_of_a_run_do_not_hold_for_others(monkeypatch):
    config = small_config(Path("own"))
    data = dataclasses.replace(config.data, tz="America/Chicago", columns="time,open,high,low,close")
    series = SeriesConfig(roll="table:es.csv", tick=0.25, multiplier=50.0, break_roll_weeks=True)
    config = dataclasses.replace(config, data=data, series=series)
    as_asked = evaluation._as_asked
    assert as_asked(config, Reload()) == config
    assert as_asked(config, Reload(other_data=True)) == config
    assert as_asked(config, Reload(other_data=True, symbol="ESZ9")).series == series
    nq = as_asked(config, Reload(other_data=True, symbol="NQ.FUT"))
    assert nq.series == SeriesConfig(break_roll_weeks=True)
    assert nq.data == dataclasses.replace(data, symbol="NQ.FUT")
    prepared = dataclasses.replace(config, data=dataclasses.replace(data, data_dir=Path("other.npz")))
    other = as_asked(prepared, Reload(other_data=True))
    assert (other.data, other.series) == (DataConfig(Path("other.npz"), "ES.FUT"), SeriesConfig())
    assert as_asked(prepared, Reload()) == prepared

    def planned(config, *, quiet, is_other):
        raise DataError(f"other {is_other}")

    monkeypatch.setattr(evaluation, "plan", planned)
    for is_other in (True, False):
        with pytest.raises(DataError, match=f"other {is_other}"):
            reload(finished_run(), Reload(other_data=is_other))


def test_tables_are_compared_row_by_row_nulls_included():
    seen = evaluation._Seen()
    then = pl.DataFrame({"a": [1, 2, None], "b": [0.5, 1.5, 2.5]})
    seen.rows("t", then, then)
    seen.rows("t", then.with_columns(b=pl.col("b") + 1e-9), then)
    assert seen.differences == []
    seen.rows("t", then.with_columns(a=pl.Series([1, None, None])), then)
    seen.rows("t", then.with_columns(b=pl.Series([0.5, 1.5, 2.51])), then)
    seen.rows("t", then.head(2), then)
    assert ["row 1" in seen.differences[0], "row 2" in seen.differences[1], "2 rows" in seen.differences[2]] == [
        True
    ] * 3
    assert seen.count == 15
