import datetime

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.report import charts
from tidewalk.report.charts import MAX_THIN_POINTS, equity_figure, label, session_figure, stitched, window_figure
from tidewalk.stats.metrics import MAX_CLOSED_DAYS
from tidewalk.store import layout, results

DAY = datetime.date(2024, 1, 2)


def equity_of(policies: dict[str, list[float]], dates: list[datetime.date], windows: list[int]) -> pl.DataFrame:
    frames = []
    for name, net in policies.items():
        columns = {
            "policy": [name] * len(net),
            "symbol": ["ES.FUT"] * len(net),
            "window": windows,
            "trade_date": dates,
            "net_usd": net,
        }
        columns |= {"gross_usd": net, "costs_usd": [0.0] * len(net), "equity_usd": np.cumsum(net)}
        columns |= {"position_mean": [0.5] * len(net), "trades": [1] * len(net)}
        frames.append(pl.DataFrame(columns).cast(pl.Schema(results.EQUITY.schema)))
    return pl.concat(frames)


def days(count: int, first: datetime.date = DAY) -> list[datetime.date]:
    return [first + datetime.timedelta(days=k) for k in range(count)]


def test_a_pause_breaks_the_line_and_carries_the_equity_to_the_next_eve():
    dates = np.array(["2024-01-02", "2024-01-03", "2024-03-01"], "datetime64[D]")
    x, y = stitched(dates, np.array([10.0, 5.0, 8.0]))
    assert x.astype(str).tolist() == [
        *("2024-01-01", "2024-01-02", "2024-01-03"),  # from zero
        *("2024-01-04", "2024-02-29", "2024-03-01"),  # the break, the value carried, the next session
    ]
    np.testing.assert_array_equal(y, [0.0, 10.0, 5.0, np.nan, 5.0, 8.0])


@given(st.lists(st.integers(1, 60), min_size=0, max_size=40))
def test_every_session_is_kept_in_order_and_every_pause_becomes_one_gap(steps):
    dates = np.datetime64("2024-01-02") + np.cumsum([0, *steps]).astype("timedelta64[D]")
    values = np.arange(dates.size) + 1.0
    x, y = stitched(dates, values)
    assert np.isnan(y).sum() == sum(step > MAX_CLOSED_DAYS for step in steps)
    assert (np.diff(x) >= np.timedelta64(0, "D")).all()
    assert dict(zip(x.tolist(), y, strict=True)).items() >= dict(zip(dates.tolist(), values, strict=True)).items()


def test_no_sessions_give_no_line():
    x, y = stitched(np.array([], "datetime64[D]"), np.array([]))
    assert x.size == y.size == 0


def test_the_figure_shows_every_policy_the_ensemble_bold_and_the_oracle_off(make_run):
    run = layout.open_run(make_run())
    windows = results.read_windows(run)["windows"]
    figure = equity_figure(results.read_equity(run), windows)
    lines = {trace.name: trace for trace in figure.data}
    assert {"ensemble", "seeds (4)", "long", "short", "momentum", "flat", "not tested"} <= lines.keys()
    assert lines["oracle (hindsight bound)"].visible == "legendonly"
    assert lines["ensemble"].line.width > 2 * lines["seeds (4)"].line.width
    assert all(lines[name].line.dash for name in ("long", "short", "momentum", "flat"))
    assert sum(trace.name == "seeds (4)" for trace in figure.data) == 4
    assert sum(bool(trace.showlegend) for trace in figure.data if trace.name == "seeds (4)") == 1
    shapes = figure.layout.shapes
    assert sum(shape.type == "line" for shape in shapes) == 8
    assert sum(shape.type == "rect" for shape in shapes) == 7
    assert [note.text for note in figure.layout.annotations] == [f"W{k}" for k in range(8)]


def test_a_policy_far_outside_is_off_at_first_and_named():
    policies = {"ensemble": [10.0, -5.0], "long": [20.0, -30.0], "momentum": [-40.0, -50.0], "flat": [0.0, 0.0]}
    equity = equity_of(policies | {"oracle": [1.0, 1.0]}, days(2), [0, 0])
    assert charts.hidden_at_first(equity) == ["momentum", "oracle"]
    visible = {trace.name: trace.visible for trace in equity_figure(equity, []).data}
    assert visible["momentum"] == "legendonly"
    assert visible["flat"] is visible["long"] is True


def test_contiguous_tests_have_no_untested_shade():
    dates = days(10)
    figure = equity_figure(equity_of({"ensemble": [1.0, -2.0] * 5}, dates, [0] * 5 + [1] * 5), [])
    assert [shape.type for shape in figure.layout.shapes] == ["line", "line"]
    assert "not tested" not in [trace.name for trace in figure.data]


def test_a_loss_in_the_first_session_is_a_drawdown():
    figure = equity_figure(equity_of({"ensemble": [-10.0, -15.0]}, days(2), [0, 0]), [])
    fall = next(trace for trace in figure.data if trace.name == "drawdown")
    np.testing.assert_array_equal(fall.y, [0.0, -10.0, -25.0])


def test_without_any_drawdown_there_is_no_empty_panel():
    figure = equity_figure(equity_of({"ensemble": [0.0, 0.0]}, days(2), [0, 0]), [])
    assert "yaxis2" not in figure.to_dict()["layout"]


def test_thin_lines_are_thinned_and_bold_ones_are_not():
    count, seeds = 3000, 20
    policies = {"ensemble": [1.0] * count} | {f"seed {k}": [1.0] * count for k in range(seeds)}
    windows = [k // 100 for k in range(count)]
    figure = equity_figure(equity_of(policies, days(count), windows), [])
    thin = [trace for trace in figure.data if trace.name == "seeds (20)"]
    assert sum(len(trace.y) for trace in thin) <= MAX_THIN_POINTS + seeds * (2 * 30 + 1)
    assert {float(trace.y[-1]) for trace in thin} == {float(count)}
    bold = next(trace for trace in figure.data if trace.name == "ensemble")
    assert len(bold.y) == count + 1


def test_very_many_windows_are_named_now_and_then():
    count = 100
    figure = equity_figure(equity_of({"ensemble": [1.0] * count}, days(count), list(range(count))), [])
    assert len(figure.layout.annotations) <= charts.MAX_LABELS


def test_names_are_shown_literally():
    name = "<b>x</b></script><script>alert(1)</script>|"
    figure = equity_figure(equity_of({"ensemble": [1.0], name: [2.0]}, days(1), [0]), [])
    assert "&lt;b&gt;x&lt;/b&gt;&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;|" in [t.name for t in figure.data]
    assert label('a < b & "c"') == 'a &lt; b &amp; "c"'


def test_nothing_tested_gives_no_figure():
    assert equity_figure(equity_of({"ensemble": []}, [], []), []) is None
    assert window_figure([]) is None
    assert session_figure(np.array([])) is None
    assert session_figure(np.zeros(5)) is None
    assert charts.waterfall_figure(0.0, 0.0, 0.0) is None
    assert charts.waterfall_figure(None, 1.0, 2.0) is None
    assert charts.hours_figure(pl.DataFrame(schema=results.TRADES.schema)) is None
    assert charts.selection_figure(pl.DataFrame(schema=results.MEMBERS.schema)) is None


def window_row(window: int, net: float | None, seeds: list[float]) -> dict:
    test = ["2024-05-01", "2024-05-31"]
    return {"window": window, "test": test, "net_usd": net, "seeds_net_usd": seeds, "long_usd": -1.0}


def test_windows_are_bars_coloured_by_their_sign_with_a_dot_per_seed():
    figure = window_figure([window_row(0, 10.0, [1.0, 2.0]), window_row(1, -5.0, [3.0]), window_row(2, None, [9.0])])
    bars, dash, dots = figure.data
    assert list(bars.y) == [10.0, -5.0]
    assert bars.marker.color == (charts.BLUE, charts.VERMILION)
    assert list(dash.y) == [-1.0, -1.0]
    assert list(zip(dots.x, dots.y, strict=True)) == [(0, 1.0), (0, 2.0), (1, 3.0)]
    assert list(figure.layout.xaxis.ticktext) == ["W0<br>2024-05", "W1<br>2024-05"]


def test_diverged_members_are_no_evidence_about_selection(make_run):
    members = results.read_members(layout.open_run(make_run()))
    (dots,) = charts.selection_figure(members).data
    assert len(dots.x) == members.height - 1 == 31


@given(st.lists(st.floats(-1e5, 1e5), min_size=2, max_size=200).filter(lambda net: max(net) - min(net) > 1e-3))
def test_the_histogram_holds_every_session_and_no_bin_mixes_gains_and_losses(net):
    (bars,) = session_figure(np.array(net)).data
    width = bars.width / 0.96
    assert sum(bars.y) == len(net)
    edges = (np.asarray(bars.x) - width / 2) / width
    np.testing.assert_allclose(edges, np.round(edges), atol=1e-6)
    losses = sum(bars.y[k] for k in range(len(bars.y)) if bars.marker.color[k] == charts.VERMILION)
    assert losses == sum(np.floor(value / width) < 0 for value in net)


def test_the_waterfall_takes_costs_from_gross():
    (bars,) = charts.waterfall_figure(100.0, 30.0, 70.0).data
    assert list(bars.y) == [100.0, -30.0, 70.0]
    assert list(bars.text) == ["100", "\u221230", "70"]


def test_hours_count_contracts_by_reason_in_utc():
    hour = 3_600 * 10**9
    fills = [(14, "ESH4", 1, 1, 5000.0, 2.0, 2.5, 4.5, "decision"), (38, "ESH4", -2, -1, 5000.0, 4.0, 5.0, 9.0, "end")]
    rows = [("ES.FUT", 0, at * hour, *fill) for at, *fill in fills]
    figure = charts.hours_figure(pl.DataFrame(rows, schema=results.FILLS.schema, orient="row"))
    assert [(trace.name, list(trace.x), list(trace.y)) for trace in figure.data] == [
        ("decision", [14], [1]),
        ("end", [14], [2]),
    ]


@pytest.mark.parametrize(("value", "known"), [(1, 1.0), (2.5, 2.5), (None, None), (float("nan"), None), (True, None)])
def test_only_finite_numbers_are_numbers(value, known):
    assert charts.finite(value) == known
    assert charts.finite(float("inf")) is None
    assert charts.finite("3") is None


def test_windows_of_two_symbols_on_the_same_months_are_one_range_and_gaps_are_between_all():
    windows = [
        {"window": number, "test": {"first": first, "last": last}}
        for number, (first, last) in enumerate(
            [
                ("2024-01-02", "2024-01-31"),
                ("2024-03-01", "2024-03-28"),
                ("2024-01-03", "2024-01-31"),
                ("2024-02-01", "2024-02-29"),
            ]
        )
    ]
    ranges = charts._test_ranges(pl.DataFrame(), windows)
    assert ranges == [
        ("W0, W2", "2024-01-02", "2024-01-31"),
        ("W3", "2024-02-01", "2024-02-29"),
        ("W1", "2024-03-01", "2024-03-28"),
    ]
    figure = go.Figure()
    charts._mark_windows(figure, ranges)
    assert [shape.type for shape in figure.layout.shapes] == ["line"] * 3


def test_grey_is_where_no_symbol_is_tested():
    """The first range outlasts the second, and nothing is tested in April and May."""
    ranges = [
        ("W0", "2024-01-02", "2024-03-28"),
        ("W1", "2024-01-03", "2024-01-31"),
        ("W2", "2024-06-03", "2024-06-28"),
    ]
    figure = go.Figure()
    charts._mark_windows(figure, ranges)
    grey = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert grey == [("2024-03-28", "2024-06-03")]


def test_each_symbol_has_its_line_and_one_symbol_has_no_figure(make_run):
    equity = results.read_equity(layout.open_run(make_run(more_symbols=("NQ.FUT",), windows=2)))
    figure = charts.symbols_figure(equity)
    assert [trace.name for trace in figure.data] == ["ES.FUT", "NQ.FUT"]
    own = equity.filter((pl.col("policy") == "ensemble") & (pl.col("symbol") == "NQ.FUT"))
    assert figure.data[1].y[-1] == pytest.approx(own["net_usd"].sum())
    assert charts.symbols_figure(equity.filter(pl.col("symbol") == "ES.FUT")) is None


def test_of_thousands_of_seeds_a_cross_section_is_drawn_with_the_best_and_the_worst():
    rng = np.random.default_rng(0)
    ends = rng.permutation(3000)
    policies = {"ensemble": [1.0, 1.0]} | {f"seed {k}": [0.0, float(end)] for k, end in enumerate(ends)}
    figure = equity_figure(equity_of(policies, days(2), [0, 0]), [])
    drawn = sorted(float(trace.y[-1]) for trace in figure.data if trace.name == "seeds (3000, 64 drawn)")
    assert len(drawn) == charts.MAX_MEMBER_LINES
    assert (drawn[0], drawn[-1]) == (0.0, 2999.0)
    assert np.diff(drawn).min() >= 47, "evenly spaced in rank"
