"""Rows of a table placed in time: their zone, the end of the bar that is stamped, and their order.

The zone is never guessed: stamps say it, the format fixes it, or the user names it. The bars are then looked at, and
where they do not fit what was said there is a warning.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidewalk.core.errors import DataError
from tidewalk.core.words import counted
from tidewalk.data.bars import E9
from tidewalk.data.checks.quality import Finding
from tidewalk.data.rows import DAY_NS, FileRows, Rows, infer_interval_ns, spacings_ns, take
from tidewalk.data.text.columns import says_utc
from tidewalk.data.text.hours import MINUTE_NS, Fit, best_fit, label_shown, misfit
from tidewalk.data.text.table import Parsed, rows_of, spans
from tidewalk.data.text.zones import HOUR_NS, parse_zone, to_utc

MIN_NOONS = 2
"""Noons at which a clock has to run back to be one of 12 hours."""


def table_rows(
    parsed: Parsed,
    labels: Collection[str],
    *,
    zone: str | None,
    bar_label: Literal["open", "close"] | None,
) -> FileRows:
    """Rows of the labels asked for, oldest first and in UTC.

    Args:
        parsed: from `parse_table`.
        labels: symbols of the symbol column; without such a column, the one label that all rows get.
        zone: zone of naive stamps, see `parse_zone`.
        bar_label: which end of the bar the stamps name, None for what the format is known to do, else "open".

    Raises:
        DataError: naive stamps without a zone, or wall times that the zone does not settle.
    """
    where = parsed.header.source.name
    used_zone, zone_findings = _zone(parsed, zone)
    close_labelled, label_findings = _close_labelled(parsed, bar_label)
    rows, order = {}, list[Finding]()
    for label in sorted(labels):
        rows[label], found = _oldest_first(rows_of(parsed, label), used_zone, where)
        order += found
    unmapped = len(rows_of(parsed, "").row) if parsed.symbol is not None else 0
    interval_ns = parsed.interval_ns or infer_interval_ns(rows.values()) or _interval_of_all_ns(parsed, rows)
    if bar_label != "open" and (late_ns := _before_the_end_ns(rows, interval_ns)):
        rows = {label: replace(part, stamp_ns=part.stamp_ns + late_ns) for label, part in rows.items()}
        text = f"stamps are {late_ns / E9:g} s before the end of the bar: taken as its end"
        close_labelled, label_findings = True, (Finding("bar-label", text),)
    doubts = _doubts(parsed, rows, used_zone, interval_ns, close_labelled=close_labelled, bar_label=bar_label)
    findings = (*parsed.findings, *zone_findings, *label_findings, *dict.fromkeys(order), *doubts)
    has_volume = bool(parsed.header.columns.volume)
    return FileRows(rows, parsed.rows_read, unmapped, interval_ns, has_volume, close_labelled, findings)


def _before_the_end_ns(rows: Mapping[str, Rows], interval_ns: int | None) -> int:
    """What bars of minutes stamped at their last second or instant lack to their end, as in 09:30:59; 0 for others."""
    if interval_ns is None or interval_ns % MINUTE_NS:
        return 0
    rests_ns = {int(rest) for part in rows.values() for rest in np.unique(part.stamp_ns % MINUTE_NS)[:2]}
    late_ns = MINUTE_NS - max(rests_ns, default=0)
    return late_ns if len(rests_ns) == 1 and late_ns <= E9 else 0


def _interval_of_all_ns(parsed: Parsed, rows: Mapping[str, Rows]) -> int | None:
    """Bar length of the whole file, for a symbol that trades too thinly to show it; None where it does not fit."""
    if parsed.symbol is None:
        return None
    interval_ns = infer_interval_ns([rows_of(parsed, span.label) for span in spans(parsed)])
    steps_ns = spacings_ns(rows.values())
    fits = interval_ns is not None and (not len(steps_ns) or int(steps_ns.min()) >= interval_ns)
    return interval_ns if fits else None


def _said(text: str, *, is_warning: bool = False) -> Finding:
    return Finding("time-zone", text, is_warning=is_warning)


def _zone(parsed: Parsed, zone: str | None) -> tuple[str | None, tuple[Finding, ...]]:
    """Zone in which to read the stamps (None: they are UTC), with findings."""
    if parsed.form == "date":
        return None, (_said("stamps are dates: each bar is taken as one UTC day"),)
    if parsed.form == "utc":
        known = "the stamps say their zone themselves, by an offset from UTC or as a count since 1970"
        return None, (_said(f"--tz is not used: {known}" if zone else known),)
    written = _written_zone(parsed)
    if written is not None:
        unused = (_said("--tz is not used: the stamps say their zone themselves"),) if zone else ()
        return written, (_said(f"stamps are wall time of {written}, as they say themselves"), *unused)
    own, why = _own_zone(parsed)
    if zone is None and own is None:
        raise _no_zone(parsed)
    if zone is None:
        return own, (_said(f"stamps are {'' if own == 'UTC' else 'wall time of '}{own}, {why}"),)
    meant = parse_zone(zone)
    said = [_said(f"stamps are wall time of {zone} (--tz)")]
    said += [_said(meant.remark)] if meant.remark else []
    if own is not None and (meant.base, meant.shift_ns) != (parse_zone(own).base, parse_zone(own).shift_ns):
        said.append(_said(f"stamps are {own}, {why}; --tz {zone} was used instead", is_warning=True))
    return zone, tuple(said)


def _written_zone(parsed: Parsed) -> str | None:
    """The zone named behind the stamps, None where there is none or only an abbreviation.

    Raises:
        DataError: several zones.
    """
    zones = {name for name in parsed.zones if "/" in name}
    if len(zones) > 1:
        raise DataError(
            f"{parsed.header.source.name}: stamps name several zones: {', '.join(sorted(zones))}. "
            "Give one zone per file."
        )
    return next(iter(zones), None)


def _own_zone(parsed: Parsed) -> tuple[str | None, str]:
    """The zone that the file's columns or its format say, and by what."""
    header = parsed.header
    name = header.names[header.columns.stamp or 0]
    if says_utc(name):
        return "UTC", f"as the column name {name!r} says"
    if header.dialect.zone is not None and header.dialect.is_sure:
        return header.dialect.zone, f"as {header.dialect.name} writes them"
    return None, ""


def _no_zone(parsed: Parsed) -> DataError:
    """The error for naive stamps, with all that may help to name their zone."""
    shown = str(np.datetime64(int(parsed.rows.stamp_ns[0]), "ns"))[:19].replace("T", " ")
    hint = parsed.header.dialect.hint
    short = ", ".join(sorted(parsed.zones))
    helps = [f"They end in {short}, which is not the name of one zone."] if short else []
    helps += [f"{hint}."] if hint else []
    rows = _fullest(parsed)
    fit = best_fit(rows.stamp_ns, _weight(rows), infer_interval_ns([rows]))
    helps += [f"{_shown(rows, fit)}, so they may be --tz {fit.zone}."] if fit else []
    return DataError(
        f"{parsed.header.source.name}: stamps such as {shown} say no time zone. Name the zone they are in with --tz, "
        f"for example --tz America/Chicago, America/New_York or UTC.{''.join(f' {text}' for text in helps)}"
    )


def _shown(rows: Rows, fit: Fit) -> str:
    what = "volume" if rows.volume.any() else "range"
    if fit.day_only:
        return f"The days begin at {fit.opening}, as shares in New York do"
    rise = f"The {what} of the bars rises at {fit.opening} and the" if fit.jump > 0 else "The"
    return f"{rise} hour from {fit.break_hour} is empty, as on CME"


def _fullest(parsed: Parsed) -> Rows:
    """Rows of the symbol with the most of them, rising in time."""
    rows = parsed.rows
    if parsed.symbol is not None and len(parsed.symbol):
        rows = take(rows, np.flatnonzero(parsed.symbol == np.bincount(parsed.symbol).argmax()))
    return _rising(rows)


def _rising(rows: Rows) -> Rows:
    return take(rows, np.argsort(rows.stamp_ns, kind="stable")) if (np.diff(rows.stamp_ns) < 0).any() else rows


def _weight(rows: Rows) -> NDArray[np.float64]:
    """Activity of each bar: its volume, or its range in a file without volume."""
    return rows.volume if rows.volume.any() else (rows.high_e9 - rows.low_e9).astype(np.float64) / 1e12


def _close_labelled(parsed: Parsed, bar_label: str | None) -> tuple[bool, tuple[Finding, ...]]:
    """Whether stamps are the end of the bar, and a finding where that was not said by the user."""
    known = parsed.header.dialect
    if parsed.form == "date":
        return False, ()
    if bar_label is not None:
        return bar_label == "close", ()
    # TradingView never writes naive stamps; other programs use the same column names.
    if known.close_labelled is not None and (known.name, parsed.form) != ("TradingView", "naive"):
        end = "end" if known.close_labelled else "start"
        by = f"{known.name} writes them" if known.name else "the name of their column says"
        return known.close_labelled, (Finding("bar-label", f"stamps are taken as the {end} of the bar, as {by}"),)
    text = "stamps are assumed to be the start of the bar; say --bar-label close if they are its end"
    return False, (Finding("bar-label", text),)


def _oldest_first(part: Rows, zone: str | None, where: str) -> tuple[Rows, list[Finding]]:
    """Rows in rising order of time as far as the file has one, stamps in UTC, and findings on the order found."""
    findings = []
    steps = np.diff(part.stamp_ns)
    if int((steps < 0).sum()) > int((steps > 0).sum()):
        part = take(part, np.arange(len(part.row))[::-1])
        findings.append(Finding("out-of-order", "rows run newest first: reversed"))
    if zone is not None:
        _refuse_half_clock(part, where)
        part = replace(part, stamp_ns=to_utc(part.stamp_ns, zone, part.row, where))
    backwards = int((np.diff(part.stamp_ns) < 0).sum())
    if backwards:
        text = f"rows are out of time order in {counted(backwards, 'place')}: sorted"
        findings.append(Finding("out-of-order", text, backwards))
    return part, findings


def _refuse_half_clock(part: Rows, where: str) -> None:
    """Refuse a clock of 12 hours without AM and PM: it shows neither 0 nor 13, and runs back from 12 to 1.

    Args:
        part: rows, oldest first, with stamps in wall time.
        where: file name for errors.
    """
    back = np.flatnonzero(np.diff(part.stamp_ns) < 0)
    hour, day = part.stamp_ns % DAY_NS // HOUR_NS, part.stamp_ns // DAY_NS
    if len(back) < MIN_NOONS or hour.min() < 1 or hour.max() > 12:
        return
    at_noon = (day[back] == day[back + 1]) & (hour[back] == 12)
    if at_noon.mean() > 0.9:
        raise DataError(
            f"{where} row {part.row[back[0] + 1]}: the clock runs back from 12 to 1 within a day, here and in "
            f"{len(back) - 1} more places, and no hour is 0 or above 12: times of 12 hours without AM and PM, so that "
            "morning and afternoon cannot be told apart. Export with 24 hours or with AM and PM."
        )


def _doubts(
    parsed: Parsed,
    rows: Mapping[str, Rows],
    zone: str | None,
    interval_ns: int | None,
    *,
    close_labelled: bool,
    bar_label: str | None,
) -> list[Finding]:
    """Warnings where the hours of the bars do not fit the zone or the label they are read with."""
    if parsed.form == "date" or not rows:
        return []
    doubts = []
    wall = _fullest(parsed)
    starts_ns = wall.stamp_ns - (interval_ns or 0) * close_labelled
    fit = misfit(starts_ns, _weight(wall), interval_ns, zone or "UTC")
    if fit is not None:
        text = f"{_shown(wall, fit)}: the stamps fit {fit.zone}, not {zone or 'UTC'}"
        text += f". Say --tz {fit.zone} if that is right" if zone else ""
        is_open = parsed.header.dialect.close_labelled is False or bar_label is not None
        if interval_ns == HOUR_NS and not is_open:  # an hour later is also the end of the bar
            text += "; where they are the ends of the bars, --bar-label close"
        doubts.append(_said(text, is_warning=True))
    most = _rising(max(rows.values(), key=lambda part: len(part.row)))
    shown = label_shown(most.stamp_ns, interval_ns)
    if shown is not None and shown.close_labelled != close_labelled:
        other, end = ("close", "end") if shown.close_labelled else ("open", "start")
        text = (
            f"the first bar after most of {shown.num_breaks} breaks is stamped :{shown.first:02d} and the last before "
            f"them :{shown.last:02d}: stamps look like the {end} of the bar"
        )
        said = f"--bar-label {bar_label} was used" if bar_label else f"say --bar-label {other} if they are"
        doubts.append(Finding("bar-label", f"{text}; {said}", shown.num_breaks, is_warning=True))
    return doubts
