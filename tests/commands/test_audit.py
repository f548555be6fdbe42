"""`tidewalk audit`: the table, the exit code, the names of what leaks."""

import dataclasses
import functools
import json
from pathlib import Path

import pytest

from tidewalk.cli import main
from tidewalk.commands import audit as command
from tidewalk.commands.tables import output_console
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.run.audit import audit as whole
from tidewalk.run.audit.checks import Audit, Check, Record, as_record

FEATURES = """
import polars as pl

close = pl.col("close")

def build(bars):
    hours = bars.group_by_dynamic("ts", every="3h").agg(of_hour=close.last())
    return bars.join_asof(hours, on="ts").select(
        move=close - pl.col("close_prev"),
        ahead=(close.shift(-1) - close).fill_null(0.0),
        scaled=(close - close.mean()) / close.std(),
        hour=pl.col("of_hour") - close,
    )

def honest(bars):
    hours = bars.group_by_dynamic("ts", every="3h").agg(of_hour=close.last())
    hours = hours.select("of_hour", known=pl.col("ts").dt.offset_by("3h"))  # over, whether or not a last bar came
    joined = bars.join_asof(hours, left_on="known_at", right_on="known")
    return joined.select(
        move=close - pl.col("close_prev"),
        mean=close - close.ewm_mean(span=20),
        hour=(pl.col("of_hour") - close).fill_null(0.0),
    )

def broken(bars):
    raise ValueError("no idea")
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market")
    write_sample(folder, SampleConfig(months=4))
    return folder


@pytest.fixture
def flags(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags of a study of hourly bars, in a folder with the module of features."""
    (tmp_path / "audited_features.py").write_text(FEATURES)
    monkeypatch.chdir(tmp_path)
    months = ["--train-months", "1", "--val-months", "1", "--test-months", "1", "--step-months", "1"]
    return ["audit", "--data-dir", str(data), "--symbol", "ES.FUT", "--bars", "1h", *months, "--quick"]


@pytest.fixture
def without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars, fills and features alone: training is compiled, which takes long."""
    monkeypatch.setattr(whole, "_pipeline", lambda *_: None)


@pytest.mark.usefixtures("without_training")
def test_leaking_columns_are_named_and_the_exit_code_is_two(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*flags, "--features", "audited_features:build"]) == 2
    out, log = capsys.readouterr()
    assert "LEAK: ahead, scaled, hour" in out
    assert "NOT CLEAN (columns ahead, scaled, hour)" in out
    assert out.count("Feature 'ahead' sees the future") == 1, "a column is told once"
    assert "note: What follows is checked with the columns without fault: move." in out
    assert "audit: features: prefix" in log


@pytest.mark.usefixtures("without_training")
def test_honest_columns_and_the_default_set_pass(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "--features", "audited_features:honest"]) == 0
    out = capsys.readouterr().out
    assert "no leak found: " in out
    assert "fresh start" in out
    assert main([*flags, "--json", "--quiet"]) == 0
    out, log = capsys.readouterr()
    record = json.loads(out)
    assert log == ""
    assert record["is_clean"]
    assert record["counts"]["LEAK"] == record["counts"]["FAIL"] == 0
    assert {"features", "bars", "fills"} == {check["stage"] for check in record["checks"]}


@pytest.mark.usefixtures("without_training")
def test_a_function_that_fails_is_a_row_and_no_end(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "--features", "audited_features:broken"]) == 2
    out = capsys.readouterr().out
    assert "FAIL: could not be done" in out
    assert "ValueError: no idea (audited_features.py, line " in out
    assert "what follows is checked with the default set" in out


@pytest.mark.usefixtures("without_training")
def test_functions_of_installed_packages_are_not_loaded_anew(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--features", "tidewalk.market.features:build_default"]) == 0
    assert "fresh start" not in capsys.readouterr().out


def test_a_request_that_cannot_be_met_is_one_paragraph(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "--features", "audited_features:biuld"]) == 2
    err = capsys.readouterr().err
    assert "has no 'biuld' (did you mean build?)" in err
    assert "Traceback" not in err
    assert main(["audit", "--data-dir", flags[2]]) == 2
    assert "--symbol" in capsys.readouterr().err
    assert main([*flags, "--quik"]) == 2
    assert "did you mean --quick" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_audit_of_a_market_passes_and_checks_every_stage(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags[:-1], "--json", "--features", "audited_features:honest"]) == 0
    record = json.loads(capsys.readouterr().out)
    stages = {check["stage"] for check in record["checks"]}
    assert stages == {
        *("bars", "fills", "features", "scaler", "training", "selection", "observations", "actions", "controls"),
    }
    assert not [check for check in record["checks"] if check["status"] in ("skipped", "LEAK", "FAIL")]
    assert all(check["seconds"] >= 0 for check in record["checks"])


@pytest.mark.slow
def test_a_prepared_market_is_audited_without_its_bars(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    saved = tmp_path / "es.npz"
    assert main(["inspect", *flags[1:7], "--save-market", str(saved)]) == 0
    capsys.readouterr()
    assert main(["audit", "--data-dir", str(saved), *flags[3:5], *flags[7:]]) == 0
    out = capsys.readouterr().out
    assert "a prepared market holds no bars" in out
    assert ", 3 skipped" in out


def test_too_short_data_are_audited_with_the_shortest_windows_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    import audit_world as world
    from tidewalk.market.windows import WindowConfig

    market = world.markets().base
    config = dataclasses.replace(world.CONFIG, windows=WindowConfig(12, 1, 1, 1))
    record = Record("ES.FUT", lambda _: None)
    planned = whole._planned(record, config, market)
    assert planned is not None
    assert planned[0].windows.train_months == 1
    assert "checked with windows of 1, 1 and 1 months, since: Not enough history" in record.notes[0]
    short = whole.benches.part_of_market(market, slice(0, 200))
    assert whole._planned(record, config, short) is None
    assert (record.checks[-1].status, record.checks[-1].stage) == ("skipped", "windows")


# ---- what is shown


def made_up() -> Audit:
    checks = (
        Check("features", "prefix", "cut", "LEAK", "a, b", ("Feature 'a' ...", "Feature 'b' ..."), ("a", "b"), "X"),
        Check("features", "future huge", "1e30", "LEAK", "a", ("Feature 'a' again",), ("a",), "X"),
        Check("scaler", "tail", "changed", "LEAK", "the scaler", ("The scaler ...",), (), "X"),
        Check("features", "warm-up", "cut", "warning", "c", ("c never settles",), ("c",), "X"),
        Check("controls", "positive", "-", "skipped", "no column", (), (), "X"),
        Check("fills", "prices", "looked up", "pass", "all <b>fine</b> [red]", (), (), "X", 1.25),
    )
    return Audit(("X",), checks, ("a note",))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_its_width_and_cuts_nothing(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    command.show(made_up(), output_console())
    out = capsys.readouterr().out
    table = out[: out.index("note: a note")]
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in out
    assert "[red]" in out, "text from the data is no markup"
    assert out.splitlines()[-1] == (
        "NOT CLEAN (columns a, b; stages scaler): 1 of 5 checks pass, 1 with a warning, 1 skipped"
    )
    assert out.count("Feature 'a'") == 1
    assert "WARNING: features, warm-up: c never settles" in out


def test_the_record_is_plain_json_and_counts_every_status() -> None:
    record = json.loads(json.dumps(as_record(made_up())))
    assert record["counts"] == {"pass": 1, "LEAK": 3, "FAIL": 0, "warning": 1, "skipped": 1}
    assert record["checks"][0]["columns"] == ["a", "b"]
    assert not record["is_clean"]


def test_a_check_that_cannot_be_done_fails_and_the_next_one_runs() -> None:
    from tidewalk.core.errors import DataError

    def refused() -> Check:
        raise DataError("the data are short")

    record = Record("X", lambda _: None)
    record.run("features: prefix", refused)
    record.run("fills: prices", functools.partial(Check, "fills", "prices", "-", "pass", "fine"))
    assert [check.status for check in record.checks] == ["FAIL", "pass"]
    assert record.checks[0].details == ("the data are short",)
    assert record.checks[1].seconds >= 0
