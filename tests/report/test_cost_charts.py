"""Heat map over costs, its marks and its switch; break-even bars; what a delay does."""

import itertools

import numpy as np
import polars as pl
import pytest

from tidewalk.report.cost_charts import break_even_figure, delay_rows, surface_figure
from tidewalk.store import results

COSTS = {"commission_usd": 2.0, "slippage_ticks": 0.5}


def surface(symbol="ES.FUT", sides=10, delays=(0, 1)):
    """Two windows; gross 200 in each, 50 after a delay of one bar; 10 USD a tick."""
    rows = []
    for window, delay in itertools.product((0, 1), delays):
        for commission, slippage in itertools.product((0.0, 2.0, 4.0), (0.0, 0.5)):
            gross = 0.0 if sides == 0 else 200.0 if delay == 0 else 50.0
            costs = sides * (commission + 10 * slippage)
            for policy in ("ensemble", "seed 0"):
                cell = [policy, delay, commission, slippage, gross, costs, gross - costs, sides]
                rows.append([window, symbol, *cell])
    return pl.DataFrame(rows, schema=results.COST_SURFACE.schema, orient="row")


def test_cells_are_sums_over_windows_of_the_ensemble():
    figure = surface_figure(surface(), "ES.FUT", COSTS)
    first, second, mark = figure.data
    assert first.z.tolist() == [[400.0, 300.0], [360.0, 260.0], [320.0, 220.0]]
    assert second.z.tolist() == [[100.0, 0.0], [60.0, -40.0], [20.0, -80.0]]
    assert (first.visible, second.visible) == (True, False)
    assert first.zmin == second.zmin == -400.0
    assert (min(mark.x), max(mark.x)) == (0.52, 1.48)
    assert (min(mark.y), max(mark.y)) == (0.54, 1.46)


def test_buttons_show_one_delay_each_and_keep_the_mark():
    figure = surface_figure(surface(delays=(0, 1, 3)), "ES.FUT", COSTS)
    buttons = figure.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == ["no delay", "1 bar later", "3 bars later"]
    assert [list(button.args[1]) for button in buttons] == [
        [True, False, False, True],
        [False, True, False, True],
        [False, False, True, True],
    ]
    late = surface_figure(surface(delays=(0, 1, 3)), "ES.FUT", COSTS, own_delay=1)
    assert [trace.visible for trace in late.data[:3]] == [False, True, False]
    assert late.layout.updatemenus[0].active == 1
    assert not surface_figure(surface(delays=(0,)), "ES.FUT", COSTS).layout.updatemenus


@pytest.mark.parametrize(("own", "place"), [(1.0, 0.5), (9.0, 2.0), (0.0, 0.0)])
def test_costs_between_cells_are_marked_between_them(own, place):
    figure = surface_figure(surface(), "ES.FUT", COSTS | {"commission_usd": own})
    assert np.mean(figure.data[-1].y[:4]) == pytest.approx(place)


def test_nothing_traded_or_another_symbol_is_no_picture():
    assert surface_figure(surface(sides=0), "ES.FUT", COSTS) is None
    assert surface_figure(surface(), "NQ.FUT", COSTS) is None


def test_rows_of_delays_are_at_the_costs_of_the_run():
    assert delay_rows(surface(), "ES.FUT", COSTS) == [
        ["0", "400", "140", "260", "20.00"],
        ["1", "100", "140", "\u221240", "5.00"],
    ]
    assert delay_rows(surface(sides=0), "ES.FUT", COSTS)[0] == ["0", "0", "0", "0", "undefined"]
    assert delay_rows(surface(), "NQ.FUT", COSTS) == []


def test_break_even_bars_leave_out_idle_windows_and_mark_the_own_cost():
    rows = [
        {"window": 0, "symbol": "<b>", "break_even_side_usd": 6.0},
        {"window": 1, "symbol": "<b>", "break_even_side_usd": None},
        {"window": 2, "symbol": "NQ", "break_even_side_usd": -1.0},
    ]
    bars, line = break_even_figure(rows, 4.5).data
    assert list(bars.y) == [6.0, -1.0]
    assert list(bars.customdata) == ["W0<br>&lt;b&gt;", "W2<br>NQ"]
    assert list(line.y) == [4.5, 4.5]
    assert bars.marker.color[0] != bars.marker.color[1]
    assert break_even_figure(rows[1:2], 4.5) is None
    assert len(break_even_figure(rows, None).data) == 1
