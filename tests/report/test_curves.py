import numpy as np

from tidewalk.report import curves
from tidewalk.report.curves import column, member_table, phase_table, phases_figure, training_figure


def epoch(number: int, **facts) -> dict:
    loss, val = facts.get("loss", 1.0 / number), facts.get("val", 100.0 * number)
    phases = {"init": 0.5, "collect": 3.0, "learn": 5.0, "evaluate": 1.0, "total": 10.0} | facts.get("phases", {})
    members = facts.get("members", {"loss": [loss, loss], "val_net_usd": [val, val]})
    spread = {"median": val, "p10": val, "p90": val, "best": facts.get("best", val)}
    return {
        "epoch": number,
        "loss": loss,
        "loss_p10": loss,
        "loss_p90": loss,
        "val_net_usd": spread,
        "phases_ms": phases,
        "uploaded_bytes": facts.get("uploaded", 0),
        "members": members,
    }


def names(figure) -> list[str]:
    return [trace.name for trace in figure.data if trace.name]


def test_a_column_is_nan_where_the_path_ends():
    records = [{"a": {"b": 1}}, {"a": None}, {}, {"a": {"b": None}}]
    np.testing.assert_array_equal(column(records, "a", "b"), [1.0, np.nan, np.nan, np.nan])


def test_members_are_a_table_only_when_every_epoch_has_all_of_them():
    same = [epoch(1), epoch(2)]
    assert member_table(same, "loss").shape == (2, 2)
    assert member_table([*same, epoch(3, members={"loss": [1.0]})], "loss") is None
    assert member_table([{"members": None}], "loss") is None
    assert member_table([], "loss") is None
    with_null = member_table([epoch(1, members={"loss": [None, 2.0]})], "loss")
    np.testing.assert_array_equal(with_null, [[np.nan, 2.0]])


def test_training_shows_median_band_members_and_best():
    figure = training_figure([epoch(1), epoch(2, best=500.0), epoch(3)])
    assert {"median", "10 to 90 % of members", "members (2)", "best member"} <= set(names(figure))
    assert figure.layout.yaxis.title.text == "loss"
    assert figure.layout.yaxis2.title.text == "validation net, ¤"


def test_a_loss_over_decades_has_a_logarithmic_axis():
    assert training_figure([epoch(1, loss=1.0), epoch(2, loss=0.5)]).layout.yaxis.type is None
    assert training_figure([epoch(1, loss=1.0), epoch(2, loss=0.001)]).layout.yaxis.type == "log"
    assert training_figure([epoch(1, loss=1.0), epoch(2, loss=0.0)]).layout.yaxis.type is None


def test_null_losses_leave_their_panel_out():
    nothing = {"loss": [None, None], "val_net_usd": [1.0, 2.0]}
    figure = training_figure([epoch(k, loss=None, members=nothing) for k in (1, 2)])
    assert figure.layout.yaxis.title.text == "validation net, ¤"
    assert "yaxis2" not in figure.to_dict()["layout"]


def test_nothing_to_show_is_no_figure():
    assert training_figure([]) is None
    assert training_figure([epoch(1, loss=None, val=None)]) is None
    assert phases_figure([]) is None
    assert phases_figure([epoch(1, phases=dict.fromkeys((*curves.PHASES, "total")))]) is None


def test_one_epoch_is_dots_and_the_only_member_is_not_the_best_of_any():
    figure = training_figure([epoch(1, members={"loss": [1.0], "val_net_usd": [100.0]})])
    assert names(figure) == ["median", "median"]
    assert {trace.mode for trace in figure.data} == {"lines+markers"}
    low, high = figure.layout.xaxis.range
    assert low < 1 < high
    assert list(figure.layout.xaxis.tickvals) == [1]


def test_lines_of_members_are_drawn_only_when_they_are_few():
    def crowd(size: int) -> list[dict]:
        return [epoch(k, members={"loss": [1.0] * size, "val_net_usd": [1.0] * size}) for k in (1, 2)]

    assert "members (64)" in names(training_figure(crowd(64)))
    assert "members (65)" not in names(training_figure(crowd(65)))


def test_phases_and_the_rest_add_up_to_the_total():
    table = phase_table([epoch(1), epoch(2, phases={"collect": None, "learn": None})])
    assert set(table) == {*curves.PHASES, curves.REST}
    np.testing.assert_allclose(sum(table.values()), [10.0, 10.0])
    np.testing.assert_allclose(table[curves.REST], [0.5, 8.5])


def test_fused_epochs_are_called_so_and_the_phases_of_an_older_run_are_told_apart():
    fused = [epoch(1, phases=dict.fromkeys(("collect", "learn", "evaluate")))]
    assert names(phases_figure(fused)) == ["init", curves.FUSED]
    assert names(phases_figure([epoch(1)])) == [*curves.PHASES, curves.REST]


def test_uploads_have_a_panel_only_when_there_are_any():
    assert "yaxis2" not in phases_figure([epoch(1), epoch(2)]).to_dict()["layout"]
    figure = phases_figure([epoch(1, uploaded=10), epoch(2)])
    assert list(figure.data[-1].y) == [10.0, 0.0]
