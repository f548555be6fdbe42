"""Market data files to checked bars of one symbol: the door of the data part."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidewalk.core.errors import ConfigError, DataError, did_you_mean
from tidewalk.data.assemble import Assembled, BarForm, assemble, fingerprint
from tidewalk.data.bars import Loaded, SourceFile
from tidewalk.data.catalog import catalogue
from tidewalk.data.contracts import parse_contract, root_of
from tidewalk.data.dbn import INTERVAL_NS_BY_SCHEMA
from tidewalk.data.pick import Picked, Request, UsedFile, length, pick, too_short
from tidewalk.data.symbols import COMBINATION, EPOCH
from tidewalk.data.zones import check_zone

BAR_LABELS = ("open", "close")
MAX_NOTES = 12


@dataclass(frozen=True)
class DataConfig:
    """Which market data to read, and how."""

    data_dir: Path
    """Directory of market data files (subdirectories are not read), or one file."""
    symbol: str
    """What to trade: ES.FUT (every contract of a root), ESZ4 (one contract), ES.c.0 (a continuous series), any name."""
    schema: str | None = None
    """Bar length: ohlcv-1s, ohlcv-1m, ohlcv-1h or ohlcv-1d. Needed only where the files hold several."""
    tz: str | None = None
    """Time zone of stamps in text files that do not say it themselves, such as America/Chicago."""
    bar_label: Literal["open", "close"] | None = None
    """End of a bar that stamps of text and Parquet files name; left out: what the format is known to do, else open."""


def load_bars(config: DataConfig) -> Loaded:
    """Bars of a symbol, with an account of every file, row and instrument left out.

    The result depends on the content of the files only: not on their names, order, compression or dates, nor on the
    time zone of the machine.

    Raises:
        ConfigError: the path does not exist, or a flag has a value that is not allowed.
        DataError: files that cannot be trusted, do not hold the symbol, or leave it open which of them is meant.
    """
    _check(config)
    found = catalogue(config.data_dir)
    request = Request(config.symbol, config.schema, config.tz, config.bar_label, config.data_dir.name)
    picked = pick(request, found)
    form = _form(config, picked.used)
    names = [file.name for file in picked.used]
    built = assemble(config.symbol, picked.choice, [file.rows for file in picked.used], names, form)
    return Loaded(
        symbol=config.symbol,
        root=root_of(config.symbol),
        symbology=picked.choice.symbology,
        tables=built.tables,
        files=tuple(sorted((*_accounts(picked.used, built), *picked.rest), key=lambda file: file.path)),
        notes=(
            *found.notes,
            *_short([f"{file.path} {file.notes[0]}" for file in picked.rest]),
            *picked.choice.notes,
            *_instrument_notes(picked, root_of(config.symbol)),
            *_gathered([(file.name, file.rows.notes) for file in picked.used]),
            *built.notes,
            *_unused_flags(config, picked.used),
            *_form_notes(form),
            *_series_notes(picked, built),
        ),
        warnings=(
            *_gathered([(file.name, file.rows.warnings) for file in picked.used]),
            *built.warnings,
            *_series_warnings(config.symbol, picked, built, form),
        ),
        fingerprint=fingerprint(built.tables),
    )


def _check(config: DataConfig) -> None:
    if not config.symbol.strip():
        raise ConfigError("--symbol is empty: name what to trade, such as ES.FUT.")
    if config.schema is not None and config.schema not in INTERVAL_NS_BY_SCHEMA:
        allowed = tuple(INTERVAL_NS_BY_SCHEMA)
        hint = did_you_mean(config.schema, allowed)
        raise ConfigError(f"--schema {config.schema}: not a schema of bars{hint}. Allowed: {', '.join(allowed)}.")
    if config.bar_label is not None and config.bar_label not in BAR_LABELS:
        raise ConfigError(f"--bar-label {config.bar_label}: allowed are {' and '.join(BAR_LABELS)}.")
    if config.tz is not None:
        check_zone(config.tz)


def _form(config: DataConfig, used: Sequence[UsedFile]) -> BarForm:
    """Bar length, stamped end and presence of volume, in which the files have to agree.

    Raises:
        DataError: they do not, or they are too short to show their bar length.
    """
    telling = [file for file in used if not too_short(file.rows)]
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
    asked_ns = INTERVAL_NS_BY_SCHEMA[config.schema] if config.schema else None
    interval_ns = next(iter(by_length)) if by_length else asked_ns
    return BarForm(interval_ns, used[0].rows.close_labelled, all(file.rows.has_volume for file in used))


def _accounts(used: Sequence[UsedFile], built: Assembled) -> list[SourceFile]:
    accounts = []
    for number, file in enumerate(used):
        stamp_ns = built.kept.stamp_ns[built.kept.file_id == number]
        first, last = (int(stamp_ns.min()), int(stamp_ns.max())) if len(stamp_ns) else (None, None)
        notes = (*file.rows.notes, *file.rows.warnings)
        accounts.append(
            SourceFile(file.name, file.kind, file.schema, file.rows.rows_read, len(stamp_ns), first, last, notes)
        )
    return accounts


def _instrument_notes(picked: Picked, root: str) -> list[str]:
    """What was left out beside the labels that were read: spreads, combinations, other instruments."""
    others = [label for label in picked.labels if label not in picked.choice.labels]
    if not others:
        return []
    combinations = sum(1 for label in others if COMBINATION.search(label))
    rows = sum(
        file.rows.rows_read - file.rows.rows_unmapped - sum(len(part.row) for part in file.rows.rows.values())
        for file in picked.used
    )
    labels = picked.choice.labels
    kept = f"the {len(labels)} outright contracts of {root}" if picked.choice.symbology == "parent" else labels[0]
    return [
        f"left out beside {kept}: {combinations} spreads or combinations and {len(others) - combinations} other "
        f"instruments, {rows} rows"
    ]


def _unused_flags(config: DataConfig, used: Sequence[UsedFile]) -> list[str]:
    given = {"--tz": config.tz, "--bar-label": config.bar_label}
    flags = [flag for flag, value in given.items() if value is not None and used[0].schema is not None]
    return [f"{' and '.join(flags)} not used: DBN files stamp the start of a bar, in UTC"] if flags else []


def _form_notes(form: BarForm) -> list[str]:
    notes = [] if form.has_volume else ["no volume column: volume is 0 and says nothing"]
    if form.interval_ns is None:
        end = "known at its stamp" if form.close_labelled else "taken as complete when the next one starts"
        notes.append(f"bars are irregular (tick, volume or dollar bars): each is {end}")
    return notes


def _series_notes(picked: Picked, built: Assembled) -> list[str]:
    names = [table.contract for table in built.tables]
    if picked.choice.symbology == "continuous":
        return [
            f"{picked.choice.labels[0]} is the vendor's continuous series: a roll shows as a change of instrument id, "
            f"one table per run: {', '.join(_short(names))}"
        ]
    renamed = [name for name in names if name not in picked.labels] if picked.labels else []
    if renamed:
        return [f"contract codes that occur a decade apart are named with two digits of the year: {', '.join(renamed)}"]
    return []


def _series_warnings(symbol: str, picked: Picked, built: Assembled, form: BarForm) -> list[str]:
    warnings = []
    if picked.choice.symbology == "single" and parse_contract(symbol, EPOCH) is None:
        warnings.append(
            f"the files do not say which contract is behind each bar of {symbol}: if it is a continuous series its "
            "rolls are invisible, and the jump at each roll counts as profit or loss"
        )
    if form.has_volume and not any(table.volume.any() for table in built.tables):
        warnings.append("volume is 0 in every bar: the source knows no volume, or is an index and not a future")
    return warnings


def _gathered(notes: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Notes of files, those that several files share said once."""
    holders: dict[str, list[str]] = {}
    for name, texts in notes:
        for text in texts:
            holders.setdefault(text, []).append(name)
    return _short(
        [f"{names[0] if len(names) == 1 else f'{len(names)} files'}: {text}" for text, names in holders.items()]
    )


def _short(texts: Sequence[str]) -> list[str]:
    return [*texts[:MAX_NOTES], f"and {len(texts) - MAX_NOTES} more"] if len(texts) > MAX_NOTES else list(texts)
