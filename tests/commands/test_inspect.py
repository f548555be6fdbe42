import json
from pathlib import Path

import pytest

from support import planted_market
from tidewalk import cli
from tidewalk.commands import described
from tidewalk.commands import inspect as command
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.market.device import load_market


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A month of the sample market, in which a contract is left and its file kept whole."""
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder, SampleConfig(months=1, start="2023-03"))
    return folder


def inspect(capsys, *args: str | Path, code: int = 0) -> tuple[str, str]:
    assert cli.main(["inspect", *map(str, args)]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("columns", ["80", "160"])
def test_dates_contracts_and_rolls_are_whole_at_the_usual_widths(columns, sample, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    out, _ = inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT")
    assert "…" not in out
    assert max(len(line) for line in out.splitlines() if not line.startswith(("note", "fingerprint"))) <= int(columns)
    assert "1-minute bars of the front contract, 28 features" in out
    row = next(line for line in out.splitlines() if line.startswith(" ESM3"))
    assert row.split()[2:6] == ["2023-02-28", "23:00", "2023-03-31", "20:59"]
    assert (
        any(line.split()[:4] == ["2023-03-14", "ESH3", "ESM3", "+42.25"] for line in out.splitlines()) or "ESH3" in out
    )


@pytest.mark.parametrize(("bars", "words"), [("5m", "5-minute bars"), ("1h", "1-hour bars")])
def test_a_bar_length_is_said_in_its_own_unit(bars, words, sample, capsys):
    out, _ = inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--bars", bars)
    assert f" {words} of the front contract" in out


def test_a_pipe_gets_every_column_on_one_line(sample, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    out, err = inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT")
    assert any("es.fut_2023-03.ohlcv-1m.dbn.zst" in line and "ohlcv-1m " in line for line in out.splitlines())
    assert err == f"reading {sample}\n"


def test_json_holds_what_the_text_shows(sample, capsys):
    found = json.loads(inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--json")[0])
    assert found["front"]["interval_ns"] == 60 * 10**9
    assert [row["contract"] for row in found["contracts"]][:2] == ["ESH3", "ESM3"]
    assert [(roll["from"], roll["to"]) for roll in found["rolls"]] == [("ESH3", "ESM3")]
    assert found["files"][0]["rows_read"] > found["files"][0]["rows_kept"] > 0
    assert len(found["fingerprint"]) == 64


def test_a_prepared_market_is_saved_and_inspected_in_turn(sample, tmp_path, capsys):
    path = tmp_path / "march.npz"
    first, _ = inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--save-market", path, "--json")
    again, _ = inspect(capsys, "--data-dir", path, "--symbol", "ES.FUT", "--json")
    first, again = json.loads(first), json.loads(again)
    assert {name: first[name] for name in again} == again
    assert load_market(path).num_bars == first["front"]["bars"]
    assert "1-minute bars" in inspect(capsys, "--data-dir", path, "--symbol", "ES")[0]


@pytest.mark.parametrize(("name", "says"), [("march", "must end in .npz"), ("no/march.npz", "there is no folder")])
def test_a_target_that_will_not_do_is_refused_before_anything_is_read(name, says, tmp_path, capsys):
    out, err = inspect(capsys, "--data-dir", tmp_path, "--symbol", "ES", "--save-market", tmp_path / name, code=2)
    assert out == ""
    assert says in err
    assert "reading" not in err


def test_files_that_make_no_market_are_shown_all_the_same(tmp_path, capsys):
    rows = "".join(f"2024-01-02 15:{minute:02d}:00,10,11,9,10,5\n" for minute in range(10))
    (tmp_path / "foo.csv").write_text(f"time,open,high,low,close,volume\n{rows}")
    args = ("--data-dir", tmp_path / "foo.csv", "--symbol", "FOO", "--tz", "UTC")
    out, err = inspect(capsys, *args, code=2)
    assert "FOO" in out
    assert "foo.csv" in out
    assert "give --tick and --multiplier" in err
    out, err = inspect(capsys, *args, "--tick", "1", "--multiplier", "1", "--json", code=2)
    found = json.loads(out)
    assert found["contracts"][0]["bars"] == 10
    assert "front" not in found
    assert found["problem"] in err
    assert "more than 20 bars" in err


def test_warnings_come_last_and_stand_out(capsys):
    market = planted_market(days=3)
    said = [
        {"defect": "symbol", "text": "[red]a note[/red]", "count": 0, "is_warning": False, "file": None},
        {"defect": "off-tick", "text": "beware :smile:", "count": 1, "is_warning": True, "file": "a.csv"},
    ]
    command._print(described.describe_market(market) | {"data_quality": said})
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert lines[-2:] == ["note: [red]a note[/red]", "WARNING: a.csv: beware :smile:"]


def test_sessions_gaps_and_missing_bars_add_up(sample, capsys):
    found = json.loads(inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--json")[0])
    sessions = found["sessions"]
    assert sum(row["bars"] for row in sessions) == found["front"]["bars"]
    assert found["expected_bars"] - found["missing_bars"] == found["front"]["bars"]
    assert [row["front"] for row in sessions] == sorted((row["front"] for row in sessions), key=["ESH3", "ESM3"].index)
    assert {row["expected_bars"] for row in sessions} == {23 * 60}
    assert all(gap["minutes"] >= 1 for gap in found["gaps"])
    assert {entry["defect"] for entry in found["data_quality"]} >= {"spreads"}


def test_pictures_are_written_under_the_name_given(sample, tmp_path, capsys):
    inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--picture", tmp_path / "march")
    assert (tmp_path / "march.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "march.html").read_text()
    assert "ESM3" in page
    assert "2023-03-14" in page
    inspect(capsys, "--data-dir", sample, "--symbol", "ES.FUT", "--picture", tmp_path / "one.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["march.html", "march.png", "one.png"]


def test_several_symbols_are_described_one_after_the_other(sample, tmp_path, capsys):
    args = ("--data-dir", sample, "--symbol", "ES.FUT", "--symbol", "ESM3", "--picture", tmp_path / "x.png", "--json")
    found = json.loads(inspect(capsys, *args)[0])
    assert [entry["symbol"] for entry in found["symbols"]] == ["ES.FUT", "ESM3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-ES.FUT.png", "x-ESM3.png"]


def test_without_a_symbol_every_file_is_described_and_the_symbols_are_listed(sample, tmp_path, capsys):
    name = "es.fut_2023-03.ohlcv-1m.dbn.zst"
    content = (sample / name).read_bytes()
    (tmp_path / name).write_bytes(content)
    (tmp_path / "cut.dbn.zst").write_bytes(content[:-9])
    (tmp_path / "junk.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
    out, _ = inspect(capsys, "--data-dir", tmp_path)
    assert "ES.FUT (" in out
    assert "look into one with --symbol: ES.FUT" in out
    files = {row["file"]: row for row in json.loads(inspect(capsys, "--data-dir", tmp_path, "--json")[0])["files"]}
    assert files[name]["rows"] > files["cut.dbn.zst"]["rows"] > 0
    assert files["cut.dbn.zst"]["findings"][0]["defect"] == "truncated-archive"
    assert files["junk.csv"]["rows"] is None
    assert "open" in files["junk.csv"]["problem"]


@pytest.mark.parametrize("flag", ["--picture", "--save-market"])
def test_results_of_a_symbol_need_a_symbol(flag, sample, tmp_path, capsys):
    _, err = inspect(capsys, "--data-dir", sample, flag, tmp_path / "x.npz", code=2)
    assert f"{flag} {tmp_path / 'x.npz'}: needs --symbol" in err
