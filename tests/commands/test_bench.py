"""`tidewalk bench residency`: both trainers, side by side."""

import json

import pytest

from support import planted_market
from tidewalk import cli
from tidewalk.market.device import save_market

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
    assert "6 member(s): compiling" in shown.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "no question is given. Questions: residency"),
        (("residecny",), "unknown question 'residecny' (did you mean residency?)"),
        (("residency", "--rounds", "3"), "--rounds is 3; a median needs 7 or more"),
        (("residency", "--rounds", "x"), "--rounds is 'x'; it must be a whole number"),
        (("residency", "--data-dir", "nowhere"), "nowhere"),
        (("residency", "--json", "nowhere/f.json"), "there is no folder nowhere"),
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
