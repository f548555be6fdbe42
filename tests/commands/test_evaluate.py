"""`tidewalk evaluate`: what it prints and how it ends."""

import dataclasses
import json

import pytest

from finished import copy_of_run, finished_run
from support import chain_market, planted_signs
from tidewalk import cli
from tidewalk.market.device import save_market
from tidewalk.run import shares
from tidewalk.store import checkpoint, layout
from tidewalk.store.trials import LEDGER, read_ledger


def with_other_threads(path):
    """Have a run say that it was made with 99 threads; what evaluating it tells of that."""
    run = layout.open_run(path)
    layout.write_manifest(run, layout.read_manifest(run) | {"threads": 99})
    return f"threads {shares.threads()} (was 99)"


def test_the_result_on_record_is_found_again_and_what_it_was_made_with_is_told_where_it_differs(tmp_path, capsys):
    path = copy_of_run(tmp_path)
    told = with_other_threads(path)
    assert cli.main(["evaluate", str(path)]) == 0
    captured = capsys.readouterr()
    summary = json.loads((finished_run() / "summary.json").read_text())
    assert f"net {summary['oos']['net_usd']:+,.2f} = gross" in captured.out
    assert "the same as on record: all " in captured.out
    assert captured.out.endswith(f"figures and rows compared are equal to the cent, with {told}\n")
    assert captured.err == f"reading {finished_run().parents[1] / 'market.npz'}\n"


def test_another_result_ends_with_1_and_names_the_figures(tmp_path, capsys):
    path = copy_of_run(tmp_path)
    for seed in (0, 1):
        policy = path / "policies" / f"window-02-seed-0{seed}.safetensors"
        arrays, meta = checkpoint.load_policy(policy)
        checkpoint.save_policy(policy.parent, policy.stem, {name: -value for name, value in arrays.items()}, meta)
    layout.finish_manifest(layout.open_run(path), "complete")
    told = with_other_threads(path)
    assert cli.main(["evaluate", str(path), "--quiet"]) == 1
    out = capsys.readouterr().out
    assert "not what is on record" in out
    assert "oos.net_usd is " in out
    assert "more differ." in out
    assert f"It was traded with {told}. Others may round a tie otherwise" in out
    assert cli.main(["evaluate", str(path), "--quiet", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["differences"]) > 10
    assert found["made_otherwise"] == [told]


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_the_tables_fit_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.main(["evaluate", str(finished_run()), "--costs", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if not line.startswith(("ES.FUT dqn", "break-even:", "the same"))]
    assert max(map(len, tables)) <= width
    rows = [line.split() for line in tables]
    assert ["commission", "slippage", "0", "bars*", "1", "bar", "2", "bars", "5", "bars"] in rows
    assert sum(line[:1] in (["0"], ["1"], ["2"], ["4"], ["8"]) and len(line) == 6 for line in rows) >= 25
    assert ["no.", "test", "from", "to", "net", "sides", "paid/side", "break-even"] in rows
    assert [row[:3] for row in rows if row[:1] == ["1"] and "2024-05-01" in row] == [["1", "2024-05-01", "2024-05-31"]]
    own = next(row for row in rows if len(row) > 1 and row[1] == "0.5*")
    summary = json.loads((finished_run() / "summary.json").read_text())
    assert own[:3] == ["2", "0.5*", f"{summary['oos']['net_usd']:+,.0f}"]


def test_json_holds_the_same_and_a_grid_of_ones_own(capsys):
    grid = ["--commission-usd", "0,1", "--slippage-ticks", "0.5", "--delay-bars", "0,3"]
    assert cli.main(["evaluate", str(finished_run()), "--json", "--quiet", *grid]) == 0
    found, summary = json.loads(capsys.readouterr().out), json.loads((finished_run() / "summary.json").read_text())
    assert (found["differences"], found["made_otherwise"], found["other_data"]) == ([], [], False)
    assert found["oos"]["net_usd"] == summary["oos"]["net_usd"]
    assert found["break_even"] == summary["cost_surface"]
    points = {(row["commission_usd"], row["slippage_ticks"], row["delay_bars"]) for row in found["cost_surface"]}
    assert points == {(fee, 0.5, delay) for fee in (0.0, 1.0, 2.0) for delay in (0, 3)}
    assert [row["policies_of_window"] for row in found["per_window"]] == [0, 1, 2]


def test_other_data_are_labelled_counted_as_a_trial_and_leave_the_run_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    run = copy_of_run(tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    longer = chain_market(planted_signs(213 * 24, 0.7, seed=3), 10, 24)
    longer = dataclasses.replace(longer, info=dataclasses.replace(longer.info, fingerprint="longer"))
    save_market(tmp_path / "longer.npz", longer)
    args = ["evaluate", str(run), "--data-dir", str(tmp_path / "longer.npz"), "--quiet"]
    assert cli.main(args) == 2
    assert "not the data of the run" in capsys.readouterr().err
    assert cli.main([*args, "--other-data"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("OTHER DATA than those of copy; nothing of this is recorded in the run.")
    assert out.count("of window 2") == 2
    assert "on record" not in out
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (trial,) = read_ledger(tmp_path / LEDGER).trials
    assert trial.data_fingerprint == "longer"
    assert trial.config_hash.startswith(layout.read_manifest(layout.open_run(run))["config_hash"])
    assert f"counted in {tmp_path / LEDGER}: " in out
    # once more it is the same trial; policies of another run are another one
    assert cli.main([*args, "--other-data", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["oos"]["net_usd"], found["oos"]["sessions"]) == (pytest.approx(trial.net_usd), trial.sessions)
    assert len(read_ledger(tmp_path / LEDGER).trials) == 1
    manifest = layout.read_manifest(layout.open_run(run))
    layout.write_manifest(layout.open_run(run), manifest | {"policies_sha256": "0" * 64})
    assert cli.main([*args, "--other-data"]) == 0
    assert len(read_ledger(tmp_path / LEDGER).trials) == 2


def test_a_folder_that_is_no_run_and_a_flag_that_is_none_are_refused(tmp_path, capsys):
    assert cli.main(["evaluate", str(tmp_path / "none")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert cli.main(["evaluate", str(finished_run()), "--delays", "1"]) == 2
    assert "unknown flag --delays" in capsys.readouterr().err
    assert cli.main(["evaluate", str(finished_run()), "--delay-bars", "1,x"]) == 2
    assert "--delay-bars is '1,x'" in capsys.readouterr().err
