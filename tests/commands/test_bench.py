"""`tidewalk bench residency`: both trainers, side by side."""

import json

import pytest

from support import as_nq, planted_market
from tidewalk import cli
from tidewalk.market.device import save_market
from tidewalk.run import residency
from tidewalk.run.mesh import Transfers
from tidewalk.run.residency import RESIDENT, REUPLOADING, Case, Trainer
from tidewalk.run.timing import PhaseTimes

SIZES = (
    *("--train-months", "2", "--val-months", "1", "--test-months", "1", "--step-months", "1", "--seeds", "2"),
    *("--max-steps-per-epoch", "3", "--batch-size", "8", "--hidden", "8", "--lanes", "4", "--replay-capacity", "64"),
    *("--prefill-steps", "4", "--rounds", "7"),
)


@pytest.fixture(scope="module")
def market_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("market") / "planted.npz"
    save_market(path, planted_market(days=182))
    return path


def trainer(init_ms, total_ms, sent_bytes):
    fused = PhaseTimes(init_ms, None, None, None, total_ms)
    phased = PhaseTimes(init_ms, 11.25, 22.5, 33.75, init_ms + 67.5)
    return Trainer(fused, phased, (total_ms - 1, total_ms + 2), Transfers(1, sent_bytes, sent_bytes, 240, 2))


# what it measures is measured in the slow test below; its parts, in `test_engine.py`
def test_every_figure_is_in_the_table_and_in_the_file(market_file, tmp_path, capsys, monkeypatch):
    case = Case(2, 3, 6, 714, {RESIDENT: trainer(0.002, 8.0, 0), REUPLOADING: trainer(3.5, 20.0, 1_234_567)})
    asked = []
    monkeypatch.setattr(residency, "measure", lambda *given: asked.append(given[2]) or [case])
    words = ["bench", "residency", "--data-dir", str(market_file), "--rounds", "9", "--json"]
    assert cli.main([*words, str(tmp_path / "f.json")]) == 0
    shown = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    for row in (
        "6 members, 2 windows x 3 seeds, 714 bars of validation",
        "init, ms 0.002 3.500",
        "collect, learn, evaluate as one program, ms 8.00 16.50",
        "total, p10 to p90, ms 7.00 to 10.00 19.00 to 22.00",
        "uploaded, bytes 0 1,234,567",
        "waits for the device 2 2",
        "collect, ms 11.25 11.25",
        "evaluate, ms 33.75 33.75",
        "total, ms 67.50 71.00",
        "The epoch that sends its market takes 2.50 times as long as the resident one.",
    ):
        assert row in rows, row
    record = json.loads((tmp_path / "f.json").read_text())
    assert (asked, record["rounds"], record["cases"][0]["ratio"]) == ([9], 9, 2.5)
    assert record["cases"][0]["trainers"]["reuploading"]["fused"]["init"] == 3.5
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == record


def test_own_data_need_no_symbol_where_they_hold_one_and_are_named_where_they_hold_several(
    tmp_path, capsys, monkeypatch
):
    asked = []
    monkeypatch.setattr(residency, "measure", lambda config, *_: asked.append(config.data.symbol) or [])
    save_market(tmp_path / "mine.npz", as_nq(planted_market(days=182)))
    words = ["bench", "residency", "--json", "--data-dir"]
    assert cli.main([*words, str(tmp_path / "mine.npz")]) == 0
    shown = capsys.readouterr()
    assert (asked, json.loads(shown.out)["symbol"]) == (["NQ.FUT"], "NQ.FUT")
    assert "--symbol NQ.FUT, the only one in" in shown.err
    (tmp_path / "data").mkdir()
    for file, contract in (("a", "ESH4"), ("b", "NQH4")):
        row = f"2024-01-02T15:00:00Z,4000,4001,3999,4000,5,{contract}"
        (tmp_path / "data" / f"{file}.csv").write_text(f"time,open,high,low,close,volume,symbol\n{row}\n")
    assert cli.main([*words, str(tmp_path / "data")]) == 2
    assert "--symbol must be given" in (said := capsys.readouterr().err)
    assert said.endswith("holds ES.FUT, NQ.FUT.\n")
    (tmp_path / "data" / "a.csv").write_text("time,open,high,low,close,volume\n2024-01-02T15:00:00Z,1,1,1,1,5\n")
    (tmp_path / "data" / "b.csv").unlink()
    assert cli.main([*words, str(tmp_path / "data")]) == 2
    assert "does not name what it holds" in capsys.readouterr().err
    assert asked == ["NQ.FUT"]


@pytest.mark.slow
def test_the_table_and_the_file_say_the_same(market_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    file = tmp_path / "figures.json"
    words = ["bench", "residency", "--data-dir", str(market_file), *SIZES, "--json", str(file)]
    assert cli.main(words) == 0
    shown, record = capsys.readouterr(), json.loads(file.read_text())
    assert [(case["windows"], case["seeds"], case["members"]) for case in record["cases"]] == [(1, 1, 1), (3, 2, 6)]
    assert (record["bars"], record["features"], record["rounds"]) == (182 * 24, 4, 7)
    for case in record["cases"]:
        kept, sent = case["trainers"]["resident"], case["trainers"]["reuploading"]
        assert kept["moved"]["bytes_h2d"] == 0
        assert sent["moved"]["bytes_h2d"] > 182 * 24 * 4 * 7
        assert (kept["moved"]["host_syncs"], sent["moved"]["host_syncs"]) == (1, 2)
        assert 0 < kept["fused"]["init"] < sent["fused"]["init"]
        assert case["ratio"] == pytest.approx(sent["fused"]["total"] / kept["fused"]["total"])
        for trainer in (kept, sent):
            phases = trainer["phased"]
            parts = [phases[name] for name in ("init", "collect", "learn", "evaluate")]
            assert all(value > 0 for value in parts)
            assert phases["total"] >= max(parts)
        assert f"{sent['moved']['bytes_h2d']:,}" in shown.out
        assert f"takes {case['ratio']:.2f} times as long" in shown.out
    assert "6 members: compiling" in shown.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no question is given. Questions: residency"),
        (("residecny",), "unknown question 'residecny' (did you mean residency?)"),
        (("residency", "--rounds", "3"), "--rounds is 3; a median needs 7 or more"),
        (("residency", "--rounds", "x"), "--rounds is 'x'; it must be a whole number"),
        (("residency", "--data-dir", "nowhere"), "nowhere"),
        (("residency", "--json", "nowhere/f.json"), "there is no folder nowhere"),
        (("residency", "--json", "/"), "--json /: this is a folder"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(words, text, capsys):
    assert cli.main(["bench", *words]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_help_lists_the_questions_and_the_flags(capsys):
    assert cli.main(["bench", "--help"]) == 0
    assert "residency" in capsys.readouterr().out
    assert cli.main(["bench", "residency", "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in ("--rounds", "--data-dir", "--max-steps-per-epoch", "--device"):
        assert flag in shown
