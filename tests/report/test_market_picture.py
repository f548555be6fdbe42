"""The picture of market data: what is drawn, and that both forms of it come out."""

import dataclasses
import json
import re

import numpy as np
import pytest

from tidewalk.report.market_page import write_market_page
from tidewalk.report.market_picture import MarketPicture, coverage_runs, figure, write_png

DAY = np.timedelta64(1, "D")


def picture(**changes) -> MarketPicture:
    """Two contracts on Monday to Friday; the front changes on Thursday and the first one is absent on Tuesday."""
    dates = np.arange("2024-03-04", "2024-03-09", dtype="datetime64[D]")
    base = MarketPicture(
        title="ES.FUT",
        contracts=("ESH4", "ESM4"),
        dates=dates,
        has_bars=np.array([[1, 0, 1, 1, 0], [0, 1, 1, 1, 1]], bool),
        volume=np.array([[9.0, 0, 8, 2, 0], [0, 1, 3, 9, 9]]),
        front=np.array([0, -1, 0, 1, 1], np.int32),
        close=np.array([5000.0, np.nan, 5010, 5070, 5065]),
        missing_frac=np.array([0.1, np.nan, 0.0, 0.0, 0.25]),
        rolls=((dates[3], "ESH4", "ESM4"),),
    )
    return dataclasses.replace(base, **changes)


def spans(runs) -> list[tuple[int, str, str]]:
    return [(run.contract, str(run.first), str(run.stop - DAY)) for run in runs]


def test_a_stretch_ends_where_a_contract_has_no_bars_on_a_day_on_which_others_have():
    present, front = coverage_runs(picture())
    assert spans(present) == [
        (0, "2024-03-04", "2024-03-04"),
        (0, "2024-03-06", "2024-03-07"),
        (1, "2024-03-05", "2024-03-08"),
    ]
    assert spans(front) == [
        (0, "2024-03-04", "2024-03-04"),
        (0, "2024-03-06", "2024-03-06"),
        (1, "2024-03-07", "2024-03-08"),
    ]


def test_a_long_week_end_does_not_end_a_stretch_and_a_pause_of_a_week_does():
    dates = np.array(["2024-03-28", "2024-04-02", "2024-04-09"], "datetime64[D]")
    made = picture(
        dates=dates,
        has_bars=np.ones((2, 3), bool),
        volume=np.ones((2, 3)),
        front=np.zeros(3, np.int32),
        close=np.ones(3),
        missing_frac=np.zeros(3),
        rolls=(),
    )
    assert spans(coverage_runs(made)[1]) == [(0, "2024-03-28", "2024-04-02"), (0, "2024-04-09", "2024-04-09")]


def test_volume_is_split_into_the_contract_held_and_all_others():
    bars = [trace for trace in figure(picture()).data if trace.type == "bar"]
    assert list(bars[0].y) == [9, 0, 8, 9, 9]
    assert list(bars[1].y) == [0, 1, 3, 2, 0]


def test_the_price_line_is_broken_at_a_roll():
    line = figure(picture()).data[-1]
    assert [None if np.isnan(y) else y for y in line.y] == [5000, None, None, None, 5010, None, 5070, 5065]


def test_a_panel_without_content_is_left_out():
    bare = picture(close=np.full(5, np.nan), missing_frac=np.full(5, np.nan))
    titles = [note.text for note in figure(bare).layout.annotations]
    assert len(titles) == 2
    assert "price" not in " ".join(titles)


def test_every_roll_is_a_line():
    shapes = figure(picture()).layout.shapes
    assert [shape.x0 for shape in shapes] == ["2024-03-07"]


@pytest.mark.parametrize("title", ["ES.FUT", "$a_b$ \\frac", "<script>alert(1)</script>"])
def test_png_of_any_name_is_a_png_and_the_same_each_time(tmp_path, title):
    made = picture(title=title, contracts=("$x$", "</script>"))
    write_png(made, tmp_path / "a.png")
    write_png(made, tmp_path / "b.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content == (tmp_path / "b.png").read_bytes()


def test_page_shows_names_literally_and_holds_the_figure(tmp_path):
    nasty = "ES</script><script>alert(1)</script>"
    made = picture(title=nasty, contracts=(nasty, "ESM4"))
    findings = [{"defect": "spreads", "text": nasty, "count": 3, "is_warning": True, "file": "a.dbn"}]
    path = tmp_path / "market.html"
    write_market_page(path, made, {"symbol": nasty}, [("Contracts", ["contract"], [[nasty]])], findings)
    page = path.read_text()
    assert "<script>alert" not in page
    assert "a.dbn: ES&lt;/script&gt;" in page
    data = re.search(r'id="figure-market">(.*?)</script>', page, re.S)
    assert data is not None
    assert len(json.loads(data.group(1))["data"]) == 6
