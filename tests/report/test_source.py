import pytest

from tidewalk.core.errors import StoreError
from tidewalk.report.source import read_run
from tidewalk.store import layout


def test_a_complete_run_misses_nothing(make_run):
    record = read_run(make_run())
    assert record.missing == record.problems == ()
    assert record.status == "complete"
    assert record.sessions_span == ("2018-05-01", "2020-02-28")
    assert [of["symbol"] for of in record.symbols] == ["ES.FUT"]
    assert [finding["defect"] for finding in record.quality[0]["findings"]] == ["spreads", "off-tick"]
    assert len(record.windows) == 8


def test_a_run_that_only_began_is_empty_but_readable(tmp_path):
    run = layout.create_run(tmp_path / "fresh", overwrite=False)
    record = read_run(run.root)
    assert record.status == "created"
    assert record.equity.is_empty()
    assert record.trades.is_empty()
    assert record.members.is_empty()
    assert record.summary == {}
    assert set(record.missing) == {
        *("summary.json", "windows.json", "metrics.jsonl", "equity.parquet"),
        *("fills.parquet", "trades.parquet", "members.parquet", "cost_surface.parquet"),
    }


def test_a_torn_line_is_reported_and_the_epochs_before_it_stay(make_run):
    folder = make_run()
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"epoch": 21, "lo')
    record = read_run(folder)
    assert len(record.metrics) == 20
    assert any("line 21 is cut short" in text for text in record.problems)


def test_files_that_are_not_what_the_run_wrote_are_reported_without_their_folder(make_run):
    folder = make_run()
    (folder / "run.toml").write_text("symbol = 'NQ'\n")
    (problem,) = read_run(folder).problems
    assert problem.startswith("run.toml: not what the run wrote")


def test_a_damaged_table_is_an_error_that_names_it(make_run):
    folder = make_run()
    (folder / "equity.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(StoreError, match=r"equity\.parquet: not readable as Parquet"):
        read_run(folder)


def test_a_folder_without_a_run_is_an_error(tmp_path):
    with pytest.raises(StoreError, match=r"not a run folder"):
        read_run(tmp_path / "absent")
    with pytest.raises(StoreError, match="not a run folder"):
        read_run(tmp_path)


def test_warnings_are_told_once_and_those_on_the_data_survive_an_unfinished_run(make_run):
    folder = make_run(seeds=5)
    told = [text for text in read_run(folder).warnings if " is undefined: " not in text]
    assert told == ["2 bars are off the tick grid."]
    run = layout.run_paths(folder)
    run.summary.unlink()
    layout.write_manifest(run, {**layout.read_manifest(run), "status": "failed", "files": {}})
    assert read_run(folder).warnings == ("2 bars are off the tick grid.",)
