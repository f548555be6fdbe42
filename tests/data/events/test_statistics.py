"""Open interest out of statistics records."""

import numpy as np
import pytest

from data.market_files import DAY_NS, HOUR_NS, ns, statistics
from tidewalk.data.events.statistics import open_interest, published

DAY = ns("2024-01-03") // DAY_NS


def figure(day: int, lots: int, published_ns: int, **more: int) -> dict[str, int]:
    return {"ts_ref": day * DAY_NS, "quantity": lots, "ts_recv": published_ns, **more}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_figures_are_known_when_they_were_published(version: int) -> None:
    rows = [figure(DAY, 2_300_000, (DAY + 1) * DAY_NS + HOUR_NS), figure(DAY + 1, 2_310_000, (DAY + 2) * DAY_NS)]
    found, revised = open_interest("ESH4", [published(statistics(rows, version), "cme-globex")])
    assert found is not None
    assert (found.contract, revised) == ("ESH4", 0)
    assert found.trade_day.tolist() == [DAY, DAY + 1]
    assert found.lots.tolist() == [2_300_000, 2_310_000]
    assert found.known_ns.tolist() == [(DAY + 1) * DAY_NS + HOUR_NS, (DAY + 2) * DAY_NS]


@pytest.mark.parametrize("version", [1, 3])
def test_other_statistics_deletions_and_undefined_figures_are_passed_over(version: int) -> None:
    undefined = 2**31 - 1 if version == 1 else 2**63 - 1
    rows = [
        figure(DAY, 1, DAY * DAY_NS, stat_type=6),
        figure(DAY, 2, DAY * DAY_NS, update_action=2),
        figure(DAY, undefined, DAY * DAY_NS),
        figure(DAY, -3, DAY * DAY_NS),
    ]
    assert open_interest("ESH4", [published(statistics(rows, version), "utc-day")]) == (None, 0)


def test_revisions_are_counted_and_the_first_figure_is_kept_whatever_the_order() -> None:
    rows = [
        figure(DAY, 100, (DAY + 1) * DAY_NS),
        figure(DAY, 105, (DAY + 1) * DAY_NS + HOUR_NS),
        figure(DAY + 1, 110, (DAY + 2) * DAY_NS),
        figure(DAY, 106, (DAY + 2) * DAY_NS + 1),
    ]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        parts = [published(statistics([rows[index]]), "utc-day") for index in order]
        found, revised = open_interest("ESH4", parts)
        assert found is not None
        assert (found.lots.tolist(), revised) == ([100, 110], 2)
        assert (np.diff(found.known_ns) > 0).all()


def test_the_same_file_twice_is_no_revision() -> None:
    part = published(statistics([figure(DAY, 100, (DAY + 1) * DAY_NS)]), "utc-day")
    found, revised = open_interest("ESH4", [part, part])
    assert found is not None
    assert (len(found.lots), revised) == (1, 0)


def test_without_a_trade_date_it_is_the_session_before() -> None:
    # Monday 2024-01-08 in Chicago: the figure counts Friday's close.
    rows = [figure(0, 100, ns("2024-01-08 03:00")), figure(0, 100, ns("2024-01-09 03:00"))]
    records = statistics(rows)
    records["ts_ref"] = 2**64 - 1
    found = published(records, "cme-globex")
    assert found.trade_day.tolist() == [ns("2024-01-05") // DAY_NS, ns("2024-01-08") // DAY_NS]
