"""Market data files to checked bars of one symbol: the door of the data part."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tidewalk.core.errors import ConfigError, DataError, did_you_mean, listed
from tidewalk.core.progress import Progress, part, silent
from tidewalk.data.assemble import Assembled, BarForm, assemble, fingerprint
from tidewalk.data.bars import Loaded, SourceFile
from tidewalk.data.checks.clean import Handling
from tidewalk.data.checks.quality import Finding, in_file, ordered
from tidewalk.data.contracts.roll_weeks import has_roll_weeks
from tidewalk.data.contracts.specs import KNOWN_ROOTS, parse_contract, root_of, spec_for
from tidewalk.data.dbn.layouts import INTERVAL_NS_BY_SCHEMA
from tidewalk.data.events.bar_rule import parse_bar_rule
from tidewalk.data.files.catalog import EMPTY, catalogue
from tidewalk.data.files.pick import ADDED, Picked, Request, UsedFile, length, pick, too_short
from tidewalk.data.files.roles import PRIMARY_SCHEMAS
from tidewalk.data.finish import finish
from tidewalk.data.rows import spacings_ns, spoken
from tidewalk.data.symbols import COMBINATION, CONTINUOUS, EPOCH
from tidewalk.data.text.csv import TextOptions, check_options
from tidewalk.data.text.zones import check_zone

BAR_LABELS = ("open", "close")
MAX_NAMES = 12
FEWEST_BARS, SPARSER = 30, 5
"""Bars, and times the length of one, from which on a common distance of all bars is no chance."""


@dataclass(frozen=True)
class DataConfig:
    """Which market data to read, and how."""

    data_dir: Path
    """Directory of market data files (subdirectories are not read), or one file."""
    symbol: str = ""
    """What to trade: ES.FUT (all contracts of a root), ESZ4, ES.c.0 (continuous), any name; repeat it for several."""
    schema: str | None = None
    """Databento schema that bars come from, such as ohlcv-1m, trades or bbo-1m. Needed only where it is ambiguous."""
    tz: str | None = None
    """Time zone of stamps in text files that do not say it themselves, such as America/Chicago."""
    bar_label: Literal["open", "close"] | None = None
    """End of a bar that stamps of text and Parquet files name; left out: what the format is known to do, else open."""
    bars: str | None = None
    """Bars to make of trades, quotes or shorter bars: 5m, 1h, 1d, tick:N, volume:N or dollar:N."""
    allow_truncated: bool = False
    """Use the whole records of a file that ends too early, instead of refusing it."""
    on_bad_bar: Literal["refuse", "drop"] = "refuse"
    """A bar whose high and low do not enclose its open and close, or with some of its prices missing."""
    on_conflict: Literal["refuse", "later"] = "refuse"
    """Two different bars for one moment; later: that of the file that reaches further, or the later row of one file."""
    date_order: Literal["dmy", "mdy", "ymd"] | None = None
    """Order of day, month and year in text files whose dates can be read in two ways."""
    columns: str | None = None
    """Columns of a text file without a header, or whose names are not understood, such as time,open,high,low,close."""
    dialect: str | None = None
    """Vendor format of text files; left out: recognised from their content."""


def load_bars(config: DataConfig, progress: Progress = silent) -> Loaded:
    """Bars of a symbol, with an account of every file, row and instrument left out.

    The result depends on the content of the files only: not on their names, order, compression or dates, nor on the
    time zone of the machine.

    Args:
        config: which files, and how they are read.
        progress: is told how far it is.

    Raises:
        ConfigError: the path does not exist, or a flag has a value that is not allowed.
        DataError: files that cannot be trusted, do not hold the symbol, or leave it open which of them is meant.
    """
    _check(config)
    found = catalogue(config.data_dir, text_options(config))
    request = Request(
        config.symbol,
        config.schema,
        config.tz,
        config.bar_label,
        config.data_dir.name,
        bars=parse_bar_rule(config.bars) if config.bars is not None else None,
        allow_truncated=config.allow_truncated,
        progress=part(progress, 0.0, 0.8),
    )
    picked = pick(request, found)
    progress("putting bars in order", 0.8)
    form = _form(config, picked.used)
    names = [file.name for file in picked.used]
    handling = Handling(config.on_bad_bar, config.on_conflict)
    built = assemble(config.symbol, picked.choice, [file.rows for file in picked.used], names, form, handling)
    finished = finish(request, picked, built.tables)
    findings = (
        *found.findings,
        *map(_left_out, picked.rest),
        *picked.choice.findings,
        *picked.findings,
        *_other_instruments(picked, root_of(config.symbol)),
        *(finding for file in picked.used for finding in in_file(file.name, file.rows.findings)),
        *built.findings,
        *finished.findings,
        *_unused_flags(config, picked.used),
        *_form_findings(form),
        *_sparser_findings(picked.used, form),
        *_series_findings(config.symbol, picked, built, form),
    )
    return Loaded(
        symbol=config.symbol,
        root=root_of(config.symbol),
        symbology=picked.choice.symbology,
        tables=finished.tables,
        files=tuple(sorted((*_accounts(picked.used, built), *picked.rest), key=lambda file: file.path)),
        findings=ordered(findings),
        fingerprint=fingerprint(finished.tables, finished.definitions, finished.open_interest),
        definitions=finished.definitions,
        open_interest=finished.open_interest,
    )


def text_options(config: DataConfig) -> TextOptions:
    """What the user says about text files."""
    return TextOptions(config.columns, config.dialect, config.date_order, config.allow_truncated)


def _check(config: DataConfig) -> None:
    if not config.symbol.strip():
        raise ConfigError(
            "--symbol is missing: name what to trade, such as ES.FUT; `tidewalk inspect --data-dir` lists what "
            "files hold."
        )
    if config.schema is not None and config.schema not in PRIMARY_SCHEMAS:
        hint = did_you_mean(config.schema, PRIMARY_SCHEMAS)
        allowed = ", ".join(PRIMARY_SCHEMAS)
        raise ConfigError(f"--schema {config.schema}: not a schema that bars come from{hint}. Allowed: {allowed}.")
    if config.bar_label is not None and config.bar_label not in BAR_LABELS:
        raise ConfigError(f"--bar-label {config.bar_label}: allowed are {' and '.join(BAR_LABELS)}.")
    if config.tz is not None:
        check_zone(config.tz)
    check_options(text_options(config))
    for flag, value, allowed in (
        ("--on-bad-bar", config.on_bad_bar, ("refuse", "drop")),
        ("--on-conflict", config.on_conflict, ("refuse", "later")),
    ):
        if value not in allowed:
            raise ConfigError(f"{flag} {value}: allowed are {' and '.join(allowed)}.")


def _form(config: DataConfig, used: Sequence[UsedFile]) -> BarForm:
    """Bar length, stamped end and presence of volume, in which the files have to agree.

    Raises:
        DataError: they do not, or they are too short to show their bar length.
    """
    telling = _telling(used)
    by_length = {file.rows.interval_ns: file.name for file in telling}
    if len(by_length) > 1:
        found = ", ".join(f"{name} has {length(interval_ns)}" for interval_ns, name in by_length.items())
        raise DataError(f"--symbol {config.symbol}: mixed bar lengths: {found}. Point --data-dir at one kind of bars.")
    by_end = {file.rows.close_labelled: file.name for file in used}
    if len(by_end) > 1:
        raise DataError(
            f"--symbol {config.symbol}: {by_end[True]} stamps the end of its bars and {by_end[False]} the start. "
            "Read them one at a time, or say --bar-label."
        )
    rows = sum(len(part.row) for file in used for part in file.rows.rows.values())
    if not telling and rows and config.schema is None:
        raise DataError(
            f"--symbol {config.symbol}: too few rows to tell the bar length of {used[0].name}. Say it with --schema."
        )
    asked_ns = INTERVAL_NS_BY_SCHEMA.get(config.schema or "")
    interval_ns = next(iter(by_length)) if by_length else asked_ns
    return BarForm(interval_ns, used[0].rows.close_labelled, all(file.rows.has_volume for file in used))


def _telling(used: Sequence[UsedFile]) -> list[UsedFile]:
    """Files that show the length of their bars: not those too short, nor one of a thin contract beside others.

    A contract that trades once in a while shows no usual distance of bars, and yet its bars lie on the others' grid.
    """
    long_enough = [file for file in used if not too_short(file.rows)]
    lengths = {file.rows.interval_ns for file in long_enough if file.rows.interval_ns is not None}
    if len(lengths) != 1:
        return long_enough
    interval_ns = lengths.pop()
    return [
        file
        for file in long_enough
        if file.rows.interval_ns is not None or (spacings_ns(file.rows.rows.values()) % interval_ns).any()
    ]


def _accounts(used: Sequence[UsedFile], built: Assembled) -> list[SourceFile]:
    accounts = []
    kept = sum((np.bincount(rows.file_id, minlength=len(used)) for rows in built.kept), np.zeros(len(used), np.int64))
    first_ns, last_ns = np.full(len(used), 2**63 - 1), np.full(len(used), -(2**63))
    for rows in built.kept:
        np.minimum.at(first_ns, rows.file_id, rows.stamp_ns)
        np.maximum.at(last_ns, rows.file_id, rows.stamp_ns)
    for number, file in enumerate(used):
        first, last = (int(first_ns[number]), int(last_ns[number])) if kept[number] else (None, None)
        said = (*file.rows.findings, *(finding for finding in built.findings if finding.file == file.name))
        notes = tuple(dict.fromkeys(finding.text for finding in said))
        accounts.append(
            SourceFile(file.name, file.kind, file.schema, file.rows.rows_read, int(kept[number]), first, last, notes)
        )
    return accounts


def _left_out(file: SourceFile) -> Finding:
    """Why no bars come from a file: it adds to them, is of another schema, no market data, or of another symbol."""
    if file.kind == EMPTY:
        return Finding("no-rows", file.notes[0], 1, is_warning=True, file=file.path)
    other = "other-schema" if file.schema is not None else "foreign-format" if file.kind == "other" else "symbol"
    return Finding(ADDED.get(file.notes[0], other), file.notes[0], 1, file=file.path)


def _other_instruments(picked: Picked, root: str) -> list[Finding]:
    """What was left out beside the labels that were read: spreads, combinations, other instruments."""
    others = [label for label in picked.labels if label not in picked.choice.labels]
    if not others:
        return []
    combinations = sum(1 for label in others if COMBINATION.search(label))
    rows = sum(
        file.rows.rows_read - file.rows.rows_unmapped - sum(len(part.row) for part in file.rows.rows.values())
        if file.rows.rows_others is None
        else file.rows.rows_others
        for file in picked.used
    )
    labels = picked.choice.labels
    kept = f"the {len(labels)} outright contracts of {root}" if picked.choice.symbology == "parent" else labels[0]
    text = (
        f"left out beside {kept}: {combinations} spreads or combinations and {len(others) - combinations} other "
        f"instruments, {rows} rows"
    )
    return [Finding("spreads", text, rows)]


def _unused_flags(config: DataConfig, used: Sequence[UsedFile]) -> list[Finding]:
    given = {"--tz": config.tz, "--bar-label": config.bar_label}
    flags = [flag for flag, value in given.items() if value is not None and used[0].schema is not None]
    text = f"{' and '.join(flags)} not used: DBN files stamp the start of a bar, in UTC"
    return [Finding("bar-label", text)] if flags else []


def _form_findings(form: BarForm) -> list[Finding]:
    found = [] if form.has_volume else [Finding("zero-volume", "no volume column: volume is 0 and says nothing")]
    if form.interval_ns is None:
        end = "known at its stamp" if form.close_labelled else "taken as complete when the next one starts"
        text = f"bars are irregular (tick, volume or dollar bars): each is {end}"
        found.append(Finding("bar-label", text))
    return found


def _sparser_findings(used: Sequence[UsedFile], form: BarForm) -> list[Finding]:
    """A warning where all bars keep a longer distance than the schema of the files says, as of another schema."""
    parts = [part for file in used if file.schema in INTERVAL_NS_BY_SCHEMA for part in file.rows.rows.values()]
    stamps_ns = [np.sort(part.stamp_ns) for part in parts if len(part.row) > 1]
    if form.interval_ns is None or sum(map(len, stamps_ns)) < FEWEST_BARS:
        return []
    step_ns = int(np.gcd.reduce([np.gcd.reduce(np.diff(stamps)) for stamps in stamps_ns]))
    if step_ns < SPARSER * form.interval_ns:
        return []
    text = (
        f"every bar starts a multiple of {spoken(step_ns)} after another, and the files say that bars are of "
        f"{spoken(form.interval_ns)}: they may be of another schema, and last longer than taken here"
    )
    return [Finding("other-schema", text, is_warning=True)]


def _series_findings(symbol: str, picked: Picked, built: Assembled, form: BarForm) -> list[Finding]:
    found = []
    names = [table.contract for table in built.tables]
    renamed = [name for name in names if name not in picked.labels] if picked.labels else []
    if picked.choice.symbology == "continuous":
        text = (
            f"{picked.choice.labels[0]} is the vendor's continuous series: a roll shows as a change of instrument id, "
            f"one table per run: {listed(names, MAX_NAMES)}"
        )
        found.append(Finding("roll", text, len(names)))
    elif renamed:
        text = (
            "contract codes that occur a decade apart are named with two digits of the year: "
            f"{listed(renamed, MAX_NAMES)}"
        )
        found.append(Finding("symbol", text, len(renamed)))
    if picked.choice.symbology == "single" and parse_contract(symbol, EPOCH) is None:
        text = (
            f"the files do not say which contract is behind each bar of {symbol}: if it is a continuous series its "
            "rolls are invisible, and the jump at each roll counts as profit or loss"
        )
        root = root_of(symbol)
        if root in KNOWN_ROOTS and has_roll_weeks(spec_for(root)):
            text += " (--break-roll-weeks leaves out the moves that may hide one)"
        # A share or a coin has no rolls; vendors mark their own series of futures as in ES=F, ES1! and @ES.
        is_future = root in KNOWN_ROOTS or CONTINUOUS.fullmatch(symbol) or any(mark in symbol for mark in "=!@#")
        found.append(Finding("rolls-invisible", text, is_warning=bool(is_future)))
    if form.has_volume and not any(table.volume.any() for table in built.tables):
        text = "volume is 0 in every bar: the source knows no volume, or is an index and not a future"
        found.append(Finding("zero-volume", text, is_warning=True))
    return found
