"""Timing in turns, failures that are kept, tables, and the record that goes with them."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import children
import common
import pytest
from common import Column, Report, Timing


@pytest.fixture
def report(tmp_path: Path) -> Report:
    columns = [Column("members", "members"), Column("ms", "ms", "{:.2f}")]
    return Report("question", {}, tmp_path / "figures.json", {"device": "none"}, columns)


def test_variants_take_turns_forwards_and_backwards(report: Report) -> None:
    asked: list[str] = []
    common.interleaved(report, {"a": lambda: asked.append("a"), "b": lambda: asked.append("b")}, rounds=3, warm_up=1)
    assert "".join(asked) == "ab" + "ba" + "ab" + "ba"


def test_the_warm_up_is_not_counted(report: Report) -> None:
    answers = iter([1000.0, 1000.0, 3.0, 1.0, 2.0])
    times = common.interleaved(report, {"a": lambda: next(answers)}, rounds=3, warm_up=2)
    assert times["a"].samples_ms == (3.0, 1.0, 2.0)
    assert times["a"].median_ms == 2.0


def test_there_are_seven_rounds_at_least_and_more_while_time_lasts(report: Report) -> None:
    assert len(common.interleaved(report, {"a": lambda: None})["a"].samples_ms) == 7
    assert len(common.interleaved(report, {"a": lambda: None}, budget_s=5.0)["a"].samples_ms) == 51


def test_a_call_is_timed_by_the_clock(report: Report) -> None:
    times = common.interleaved(report, {"a": lambda: time.sleep(0.01)}, rounds=3, warm_up=0)
    assert 10.0 <= times["a"].median_ms < 100.0


def test_a_failing_variant_costs_only_itself(report: Report) -> None:
    def broken() -> None:
        raise ValueError("does not fit\nsecond line")

    times = common.interleaved(report, {"good": lambda: 1.0, "bad": broken, "also good": lambda: 2.0})
    assert list(times) == ["good", "also good"]
    assert report.failures == {"bad": "ValueError: does not fit"}
    assert json.loads(report.path.read_text())["failures"] == report.failures


def test_figures_are_on_disk_after_every_row(report: Report) -> None:
    common.add(report, members=1, ms=2.5)
    found = json.loads(report.path.read_text())
    assert found["rows"] == [{"members": 1, "ms": 2.5}]
    assert not found["is_whole"]
    assert "2.50" in found["table"], "a run that is cut off leaves its table"
    with common.attempt(report, "the next"):
        raise RuntimeError("out of memory")
    assert common.close(report) == 0
    found = json.loads(report.path.read_text())
    assert found["is_whole"]
    assert found["failures"] == {"the next": "RuntimeError: out of memory"}
    assert "2.50" in found["table"]


def test_nothing_measured_is_an_error(report: Report) -> None:
    assert common.close(report) == 1


def test_quantiles_are_samples() -> None:
    timing = Timing(tuple(float(value) for value in range(11)))
    assert (timing.quantile_ms(0.1), timing.median_ms, timing.quantile_ms(0.9)) == (1.0, 5.0, 9.0)


def test_a_table_is_aligned_and_leaves_out_columns_without_a_value() -> None:
    rows = [{"name": "one", "ms": 1234.5, "none": None}, {"name": "second", "ms": None, "none": None}]
    columns = [Column("name", "name"), Column("ms", "median, ms", "{:,.1f}"), Column("none", "empty")]
    assert common.table(rows, columns).splitlines() == [
        "| name   | median, ms |",
        "|--------|-----------:|",
        "| one    |    1,234.5 |",
        "| second |            |",
    ]


def test_the_record_names_machine_versions_and_commit() -> None:
    found = common.environment()
    assert found["cores"] >= 1
    assert {"jax", "numpy"} <= set(found["versions"])
    said = common.in_words(found)
    assert f"Python {found['python']}" in said
    assert f"jax {found['versions']['jax']}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [sys.executable, f"{common.ROOT}/benchmarks/epoch.py", "--json", "a b.json"],
            "python benchmarks/epoch.py --json 'a b.json'",
        ),
        ([f"{common.ROOT}/.venv-bench/bin/python", "peers.py"], ".venv-bench/bin/python peers.py"),
        (["/somewhere/bin/python", "-m", "x"], "/somewhere/bin/python -m x"),
    ],
)
def test_a_command_can_be_typed_again(words: list[str], said: str) -> None:
    assert common.typed(words) == said


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="code 3: the reason"):
        children.run_quietly([sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"])


def test_every_benchmark_has_the_same_options() -> None:
    options = common.parser("text").parse_args(["--device", "cpu", "--json", "a.json", "--quick"])
    assert options == argparse.Namespace(device="cpu", json=Path("a.json"), quick=True)


def test_options_are_read() -> None:
    assert common.at_least(1)("7") == 7
    assert common.at_least(0, float)("0.5") == 0.5
    assert common.numbers("8, 1") == (8, 1), "in the order given"
    assert common.several(common.one_of(("xla", "kernel")))("kernel,xla") == ("kernel", "xla")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((common.at_least(1), text) for text in ("0", "-1", "1.5", "1e3", "nan", "inf", "", "one")),
        *((common.at_least(0.1, float), text) for text in ("0", "0.09", "-3", "nan", "inf", "-inf", "1e999", "", "x")),
        *((common.one_of(("xla", "kernel")), text) for text in ("", "xl", "XLA")),
        *((common.numbers, text) for text in ("", ",", "1,", ",1", "1,,2", "1,0", "1,1", "1;2")),
        *((common.file, text) for text in ("", ".", "/", f"{__file__}/x.json")),
        *((common.folder, text) for text in ("", __file__, f"{__file__}/x/y")),
    ],
)
def test_odd_options_are_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_a_file_and_a_folder_need_not_be_there_yet(tmp_path: Path) -> None:
    assert common.file(str(tmp_path / "new" / "a.json")) == tmp_path / "new" / "a.json"
    assert common.folder(str(tmp_path / "new" / "er")) == tmp_path / "new" / "er"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="elsewhere the system counts from the parent's peak")
def test_the_peak_of_a_process_is_its_own() -> None:
    held = bytearray(b"1") * (200 * 2**20)
    assert common.peak_mib() > 200
    folder = Path(common.__file__).parent
    program = f"import sys; sys.path.append({str(folder)!r}); import common; print(common.peak_mib())"
    assert float(children.run_quietly([sys.executable, "-c", program])) < 150
    del held
