"""Rows on the data of a study: what reading them found, and the files they came from."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from tidewalk.report.tables import number

Symbols = Sequence[Mapping[str, Any]]
MAX_ROWS = 400
"""Rows of one table; a directory of thousands of files would make the page heavy and show nothing more."""


def finding_rows(symbols: Symbols) -> list[list[str]]:
    """Findings, warnings first: weight, kind, what, count, file; where there are several symbols, the symbol before.

    `data_quality.json` holds them all, the table the first `MAX_ROWS`.
    """
    several = len(symbols) > 1
    found = [(symbol["symbol"], finding) for symbol in symbols for finding in symbol["findings"]]
    rows = []
    for symbol, finding in sorted(found, key=lambda pair: not pair[1]["is_warning"]):
        weight = "warning" if finding["is_warning"] else "note"
        count = number(finding["count"]) if finding["count"] else ""
        own = [weight, finding["defect"], finding["text"], count, finding["file"] or ""]
        rows.append([symbol, *own] if several else own)
    return rows[:MAX_ROWS]


def file_rows(symbols: Symbols) -> list[list[str]]:
    """Files by symbol: file, format, schema, rows read, rows kept, first and last kept stamp (UTC), remarks."""
    several = len(symbols) > 1
    rows = []
    read = [(symbol["symbol"], file) for symbol in symbols for file in symbol["files"]]
    for symbol, file in read:
        span = [_stamp(file.get(name)) for name in ("first_ts_ns", "last_ts_ns")]
        counts = [number(file.get(name)) for name in ("rows_read", "rows_kept")]
        own = [file["path"], file.get("kind") or "", file.get("schema") or "", *counts, *span]
        rows.append([symbol, *own] if several else own)
    return rows[:MAX_ROWS]


def _stamp(ts_ns: object) -> str:
    if not isinstance(ts_ns, int):
        return ""
    return f"{datetime.datetime.fromtimestamp(ts_ns // 10**9, datetime.UTC):%Y-%m-%d %H:%M}"
