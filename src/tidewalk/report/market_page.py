"""What market data hold, as one self-contained HTML page: picture, tables, findings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidewalk.report.market_picture import MarketPicture, figure
from tidewalk.report.shell import figure_json, render_page
from tidewalk.store.layout import write_text_atomic

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, column names and cells of a table."""


def write_market_page(
    path: Path,
    picture: MarketPicture,
    facts: Mapping[str, str],
    tables: Sequence[Table],
    findings: Sequence[Mapping[str, Any]],
) -> None:
    """Write the page.

    Args:
        path: where to.
        picture: what is drawn.
        facts: name and value of the headline facts.
        tables: tables in the order of the page.
        findings: `data_quality` records: defect, text, count, is_warning, file.
    """
    lines = [(entry, f"{entry['file']}: {entry['text']}" if entry["file"] else entry["text"]) for entry in findings]
    context = {
        "title": picture.title,
        "figures": {"market": figure_json(figure(picture))},
        "facts": [[name, value] for name, value in facts.items()],
        "tables": tables,
        "warnings": [text for entry, text in lines if entry["is_warning"]],
        "notes": [[entry["defect"], f"{entry['count']:,}" if entry["count"] else "", text] for entry, text in lines],
    }
    write_text_atomic(path, render_page("market.html.j2", context))
