"""How a whole file writes its stamps and numbers, settled before any row is read.

One row may leave open whether 03/04 is in March or in April, and whether 4,801 is a small number or a large one. As
many blocks of the file are looked at as it takes, and what no row settles is refused.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tidewalk.core.errors import DataError
from tidewalk.data.checks.quality import Finding
from tidewalk.data.text.columns import Columns
from tidewalk.data.text.dates import DateRuns, date_runs, join_runs, possible_orders, settle_order
from tidewalk.data.text.frames import TextFrame
from tidewalk.data.text.numbers import are_raw, possible_decimals, settle_decimal, texts
from tidewalk.data.text.stamps import StampForm, find_form, stamp_text


@dataclass(frozen=True)
class Manner:
    """How a whole file writes its stamps and numbers.

    Attributes:
        form: form of the stamps, None for typed columns and for counts from midnight.
        decimal: decimal mark of the numbers.
        raw: whether prices are whole numbers of 1e-9.
        findings: what was concluded.
    """

    form: StampForm | None
    decimal: str
    raw: bool
    findings: tuple[Finding, ...] = ()


def find_manner(
    frames: Iterator[TextFrame],
    columns: Columns,
    where: str,
    *,
    order: str | None,
    databento: bool,
    counts_from_midnight: bool,
) -> tuple[Manner, Iterator[TextFrame]]:
    """How a file writes stamps and numbers, from as many of its blocks as that takes, and all of its blocks.

    Args:
        frames: blocks of the file.
        columns: what is what.
        where: file name for errors.
        order: order of dates of three numbers, where it is known.
        databento: whether whole prices may be in units of 1e-9.
        counts_from_midnight: whether stamps are milliseconds of a day that they do not name.

    Raises:
        DataError: no rows, stamps of no known form, or dates or commas that can be read in two ways.
    """
    read: list[TextFrame] = []
    for frame in frames:
        read.append(frame)
        if len(frame.columns):
            break
    if not read or not len(read[-1].columns):
        raise DataError(f"{where}: a header and no rows. Export it again, or remove it.")
    first = read[-1].columns
    price = [first[str(position)] for position in columns.price]
    is_text = all(column.dtype == pl.String for column in price)
    form = None
    if first[str(columns.stamp)].dtype == pl.String and not counts_from_midnight:
        form = StampForm(find_form(stamps_of(first, columns), where))
    numbers = form is not None and form.name == "numbers"
    while (numbers and order is None and len(possible_orders(_runs(read, columns))) > 1) or (
        is_text and len(possible_decimals(_prices(read, columns))[0]) > 1
    ):
        more = next(frames, None)
        if more is None:
            break
        read.append(more)
    findings: tuple[Finding, ...] = ()
    if numbers:
        order, findings = settle_order(_runs(read, columns), where, order)
        form = StampForm("numbers", order)
    decimal = settle_decimal(_prices(read, columns), where) if is_text else "."
    if decimal == ",":
        findings = (*findings, Finding("dialect", "numbers have a decimal comma"))
    return Manner(form, decimal, databento and are_raw(price), findings), itertools.chain(read, frames)


def stamps_of(frame: pl.DataFrame, columns: Columns) -> pl.Series:
    """Stamps of a block as text, date and time of day as one."""
    return stamp_text(frame[str(columns.stamp)], None if columns.time is None else frame[str(columns.time)])


def _runs(read: Sequence[TextFrame], columns: Columns) -> DateRuns:
    return join_runs([date_runs(stamps_of(frame.columns, columns), frame.first_row) for frame in read])


def _prices(read: Sequence[TextFrame], columns: Columns) -> list[pl.Series]:
    return [texts(frame.columns[str(position)]) for frame in read for position in columns.price]
