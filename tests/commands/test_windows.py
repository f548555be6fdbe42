import json

import pytest

from support import as_nq, planted_market
from tidewalk import cli
from tidewalk.commands.windows import _contracts
from tidewalk.market.device import save_market
from tidewalk.run import markets

WINDOW = {
    "contracts": ["ESH3", "ESM3", "ESU3"],
    "rolls": [
        {"date": "2023-03-14", "from": "ESH3", "to": "ESM3"},
        {"date": "2023-06-13", "from": "ESM3", "to": "ESU3"},
    ],
}


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        ("2023-01-03", "2023-02-28", "ESH3"),
        ("2023-01-03", "2023-03-31", "ESH3, ESM3 2023-03-14"),
        ("2023-03-14", "2023-04-28", "ESM3"),
        ("2023-01-03", "2023-06-13", "ESH3, ESM3 2023-03-14, ESU3 2023-06-13"),
        ("2023-07-03", "2023-07-31", "ESU3"),
    ],
)
def test_a_range_shows_the_contracts_held_in_it(first, last, says):
    assert _contracts(WINDOW, first, last) == says


def test_without_a_roll_the_only_contract_is_shown():
    assert _contracts({"contracts": ["ESH3"], "rolls": []}, "2023-01-03", "2023-02-28") == "ESH3"


@pytest.fixture
def market_file(tmp_path):
    save_market(tmp_path / "m.npz", planted_market(days=182))
    return tmp_path / "m.npz"


def test_the_table_fits_a_terminal_of_80_columns(market_file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    args = ["--data-dir", str(market_file), "--symbol", "ES.FUT", "--train-months", "2", "--step-months", "2"]
    assert cli.main(["windows", *args]) == 0
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines()]
    assert ["0", "train", "2024-01-01", "2024-02-29", "1,436", "60", "ESH4"] in rows
    assert ["test", "2024-04-01", "2024-04-30", "720", "30", "ESH4"] in rows
    assert max(len(line) for line in captured.out.splitlines() if not line.startswith("note")) <= 80
    assert "Not traded" in captured.out
    assert captured.err == f"reading {market_file}\n"


def test_json_is_the_content_of_windows_json(market_file, capsys):
    args = ["--data-dir", str(market_file), "--symbol", "ES.FUT", "--train-months", "2", "--json", "--quiet"]
    assert cli.main(["windows", *args, "--purge-bars", "9"]) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert record["purge_bars"] == 9
    assert [row["window"] for row in record["windows"]] == [0, 1, 2]
    assert captured.err == ""


def test_settings_that_train_would_refuse_are_refused(market_file, capsys):
    args = ["--data-dir", str(market_file), "--symbol", "ES.FUT", "--train-months", "2", "--n-step", "40"]
    assert cli.main(["windows", *args]) == 2
    assert "--prefill-steps" in capsys.readouterr().err


def test_several_symbols_have_a_table_each_and_windows_numbered_on(capsys, monkeypatch):
    known = {"ES.FUT": planted_market(days=182), "NQ.FUT": as_nq(planted_market(days=152))}
    monkeypatch.setattr(markets, "read_markets", lambda config: tuple(known[symbol] for symbol in config.symbols))
    args = ["--data-dir", "data", "--symbol", "ES.FUT", "--train-months", "2", "--symbol=NQ.FUT", "--quiet"]
    assert cli.main(["windows", *args]) == 0
    out = capsys.readouterr().out
    assert out.index("ES.FUT: 3 walk-forward windows") < out.index("NQ.FUT: 2 walk-forward windows")
    numbers = [line.split()[0] for line in out.splitlines() if line.split()[1:2] == ["train"]]
    assert numbers == ["0", "1", "2", "3", "4"]
    assert out.count("NQH4") == 6
    assert cli.main(["windows", *args, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [row["symbol"] for row in record["windows"]] == ["ES.FUT"] * 3 + ["NQ.FUT"] * 2
    assert cli.main(["windows", *args, "--train-months", "4"]) == 2
    assert "NQ.FUT: Not enough history: the data hold 5 complete months" in capsys.readouterr().err
