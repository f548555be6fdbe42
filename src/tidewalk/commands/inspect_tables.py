"""Tables of `tidewalk inspect`: cells of text, the same on the terminal and on the page."""

import itertools
from typing import Any

from rich.table import Table

from tidewalk.commands.tables import table
from tidewalk.data.rows import spoken
from tidewalk.data.symbols import roots_of

Cells = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, column names, rows."""

MAX_ROWS = 40
_MONTHLY_SPAN_MONTHS = 24
_STAMPS = {"naive": "zone not said", "date": "dates"}


def headline(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts of the front series, each with its name."""
    front, spec = found["front"], found["spec"]
    currency, spread = spec["currency"], front["median_spread_ticks"]
    facts = [
        (
            "bars",
            f"{front['bars']:,} {_bars(front['interval_ns'])} of the front contract, {len(found['features'])} features",
        ),
        ("span", f"from {minute(front['first'])} to {minute(front['last'])} UTC"),
        (
            "sessions",
            f"{front['sessions']:,} sessions ({spec['sessions']}), {front['first_session']} to {front['last_session']}",
        ),
        (
            "contract",
            f"tick {spec['tick']:g}, multiplier {spec['multiplier']:g} {currency}, "
            f"commission {spec['commission_usd']:g} {currency} per side",
        ),
    ]
    if spread is not None:
        facts.append(("spread", f"recorded bid-ask spread, median {spread:g} ticks"))
    if found.get("expected_bars"):
        missing, expected = found["missing_bars"], found["expected_bars"]
        facts.append(
            ("coverage", f"{missing:,} of {expected:,} scheduled bars without a trade ({missing / expected:.1%})")
        )
    return facts


def tables_of(found: dict[str, Any]) -> list[Cells]:
    """All tables with a row, in the order in which they are shown."""
    made = [
        _contracts(found.get("contracts", [])),
        _rolls(found.get("rolls", [])),
        _periods(found.get("sessions", []), found.get("rolls", [])),
        _gaps(found.get("gaps", [])),
        _files(found.get("files", [])),
    ]
    return [cells for cells in made if cells[2]]


def overview_tables(files: list[dict[str, Any]]) -> list[Cells]:
    """Files with what they hold, and the files that are not read with the reason."""
    read = [
        (row["file"], row["schema"] or row["kind"], f"{row['rows']:,}", _span(row), _short(row["symbols"]))
        for row in files
        if not row["problem"]
    ]
    names = ("file", "holds", "rows", "span", "symbols")
    unread = [(row["file"], row["problem"]) for row in files if row["problem"]]
    made: list[Cells] = [("files", names, read), ("files that are not read", ("file", "reason"), unread)]
    return [cells for cells in made if cells[2]]


def _span(row: dict[str, Any]) -> str:
    """Dates of the first and last row, and what their stamps are where it is not UTC."""
    if not row["first"]:
        return "-"
    first, last = row["first"][:10], row["last"][:10]
    span = first if first == last else f"{first} to {last}"
    return span if row["stamps"] in ("utc", "UTC") else f"{span} ({_STAMPS.get(row['stamps'], row['stamps'])})"


def _short(symbols: list[str]) -> str:
    """Parents with the number of their contracts, then other labels, a few of them."""
    roots = roots_of(symbols)
    counts = {root: sum(root in roots_of([symbol]) for symbol in symbols) for root in roots}
    parents = [f"{root}.FUT ({count})" for root, count in counts.items()]
    others = [symbol for symbol in symbols if not roots_of([symbol])]
    named = [*parents, *others[:2], *([f"{len(others) - 2} more"] if len(others) > 2 else [])]
    return ", ".join(named) or "no symbol column"


def rendered(cells: Cells) -> Table:
    """A table for the terminal; the middle of a very long one is left out and counted."""
    title, names, rows = cells
    if len(rows) > MAX_ROWS:
        half = MAX_ROWS // 2
        gap = (f"({len(rows) - 2 * half} more)", *[""] * (len(names) - 1))
        rows = [*rows[:half], gap, *rows[-half:]]
    made = table(title, names)
    for row in rows:
        made.add_row(*row)
    return made


def minute(utc: str) -> str:
    """An ISO stamp to the minute, with a blank between date and time."""
    return utc[:16].replace("T", " ")


def _bars(interval_ns: int | None) -> str:
    if interval_ns is None:
        return "irregular bars"
    count, _, unit = spoken(interval_ns).partition(" ")
    return "daily bars" if (count, unit) == ("1", "day") else f"{count}-{unit.removesuffix('s')} bars"


def _contracts(rows: list[dict[str, Any]]) -> Cells:
    made = [
        (row["contract"], f"{row['bars']:,}", minute(row["first"]), minute(row["last"]), f"{row['volume']:,.0f}")
        for row in rows
    ]
    return "contracts", ("contract", "bars", "first (UTC)", "last (UTC)", "volume"), made


def _rolls(rows: list[dict[str, Any]]) -> Cells:
    made = [
        (
            row["date"],
            row["from"],
            row["to"],
            f"{row['basis']:+g}",
            f"{row['from_volume']:,.0f} / {row['to_volume']:,.0f}",
            row["reason"],
        )
        for row in rows
    ]
    return "rolls", ("session", "from", "to", "basis", "volumes before", "reason"), made


def _periods(sessions: list[dict[str, Any]], rolls: list[dict[str, Any]]) -> Cells:
    """Sessions by month, or by year where they span more than two years."""
    held = [row for row in sessions if row["front"]]
    months = len({row["session"][:7] for row in held})
    width = 7 if months <= _MONTHLY_SPAN_MONTHS else 4
    made = []
    for period, group in itertools.groupby(held, key=lambda row: row["session"][:width]):
        rows = list(group)
        known = [row for row in rows if row["expected_bars"]]
        expected = sum(row["expected_bars"] for row in known)
        missing = sum(max(row["expected_bars"] - row["bars"], 0) for row in known)
        made.append(
            (
                period,
                f"{len(rows)}",
                f"{sum(row['bars'] for row in rows):,}",
                f"{missing / expected:.1%}" if expected else "-",
                f"{sum(row['volume'] for row in rows):,.0f}",
                ", ".join(dict.fromkeys(row["front"] for row in rows)),
                f"{sum(roll['date'][:width] == period for roll in rolls)}",
            )
        )
    name = "month" if width == 7 else "year"
    return f"front contract by {name}", (name, "sessions", "bars", "missing", "volume", "held", "rolls"), made


def _gaps(rows: list[dict[str, Any]]) -> Cells:
    made = [
        (row["session"], row["contract"], minute(row["from"]), minute(row["to"]), f"{row['minutes']:,.0f}")
        for row in rows
    ]
    names = ("session", "contract", "from (UTC)", "to (UTC)", "minutes")
    return "longest holes inside sessions of the front contract", names, made


def _files(rows: list[dict[str, Any]]) -> Cells:
    """Files with their row counts; what was done to them and why is said in the findings."""
    made = []
    for row in rows:
        counts = (f"{row['rows_read']:,}", f"{row['rows_kept']:,}") if row["rows_read"] > 0 else ("ignored", "-")
        made.append((row["path"], row["kind"], row["schema"] or "-", *counts))
    return "files", ("file", "kind", "schema", "rows", "kept"), made
