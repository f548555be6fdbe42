"""What the files of a directory are: DBN and tables of bars, files of other schemas, and files that are no data."""

from dataclasses import dataclass
from pathlib import Path

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import SourceFile
from tidewalk.data.checks.quality import Finding
from tidewalk.data.dbn.header import DbnHeader
from tidewalk.data.dbn.labels import parts, read_header
from tidewalk.data.dbn.layouts import LAYOUTS
from tidewalk.data.files.folder import CONDITION_FILE, DOCUMENT_STEMS, claims_data, is_side_file, listing, poor_days
from tidewalk.data.files.source import Source, members, probe
from tidewalk.data.text.csv import NO_OPTIONS, TextOptions
from tidewalk.data.text.table import Header, open_table

READ_SCHEMAS = tuple(schema for schema in LAYOUTS if schema != "symbol mapping")
"""DBN schemas that are read: bars, trades, quotes, definitions, statistics."""

NOT_BY_NAME = "ignored: not market data by its name"
WORKBOOK_PART = "[Content_Types].xml"
"""A file that every zip of Microsoft Office has."""

EMPTY = "empty"
"""Kind of a file without a byte: in a directory it is told and passed over."""

NEED = {
    "mbo": "single orders are not read; download mbp-1 (quotes and trades), trades or ohlcv-1m",
    "status": "trading status is not used; download ohlcv-1m or trades",
    "imbalance": "auction imbalances are not used; download ohlcv-1m or trades",
    "ohlcv-eod": "end-of-day summaries are not read; download ohlcv-1d",
}


@dataclass(frozen=True)
class DbnFile:
    """A DBN file whose header is read."""

    source: Source
    header: DbnHeader

    @property
    def kind(self) -> str:
        """Format in words, such as "dbn v1 zstd"."""
        return f"dbn v{self.header.version} {self.source.container}".rstrip()


@dataclass(frozen=True)
class Catalog:
    """Files that hold bars, files that do not, and text files whose columns are not those of bars.

    Attributes:
        dbn: DBN files of `READ_SCHEMAS`.
        tables: text, Parquet and Arrow files of bars.
        ignored: files left out, each with the reason.
        unreadable: tables that could not be understood, by name, with the error each gave.
        findings: subdirectories left out or read, days that the vendor says are poor.
    """

    dbn: tuple[DbnFile, ...]
    tables: tuple[Header, ...]
    ignored: tuple[SourceFile, ...]
    unreadable: dict[str, DataError]
    findings: tuple[Finding, ...]


def catalogue(data_dir: Path, options: TextOptions = NO_OPTIONS) -> Catalog:
    """What a directory (its own files, not those of subdirectories) or a single file holds.

    Files that a vendor or the system puts beside the data (manifests, checksums, hidden files) are passed over; what a
    `condition.json` of Databento says of days without good data becomes a finding.

    Raises:
        ConfigError: the path does not exist.
        DataError: it is empty, a single file is not one of bars, or a file named as market data is damaged.
    """
    if not data_dir.exists():
        raise ConfigError(f"--data-dir {data_dir}: no such file or directory.")
    single = not data_dir.is_dir()
    paths, findings = ([data_dir], []) if single else listing(data_dir)
    dbn: list[DbnFile] = []
    tables: list[Header] = []
    ignored: list[SourceFile] = []
    unreadable: dict[str, DataError] = {}
    for path in paths:
        if not single and path.name.lower() == CONDITION_FILE:
            findings += poor_days(path)
        if not single and is_side_file(path.name):
            continue
        for name, found in _open(path, options, single=single):
            if isinstance(found, DbnFile):
                dbn.append(found)
            elif isinstance(found, Header):
                tables.append(found)
            elif isinstance(found, SourceFile):
                ignored.append(found)
            else:
                unreadable[name] = found
    return Catalog(tuple(dbn), tuple(tables), tuple(ignored), unreadable, tuple(findings))


def why_ignored(name: str, error: DataError) -> str:
    """Why a file is not used, in words that other files may share."""
    return f"ignored: {str(error).removeprefix(f'{name}: ')}"


def left_out(name: str, kind: str, schema: str | None, reason: str) -> SourceFile:
    """Account of a file that is not used."""
    return SourceFile(name, kind, schema, 0, 0, None, None, (reason,))


Found = DbnFile | Header | SourceFile | DataError


def _open(path: Path, options: TextOptions, *, single: bool) -> list[tuple[str, Found]]:
    """What a file is, by name; each file of a zip is one of its own."""
    if not single and _is_document(path.name):
        return [(path.name, left_out(path.name, "other", None, NOT_BY_NAME))]
    try:
        if not path.is_file():
            raise DataError(f"{path.name}: not a regular file (a broken link, a pipe or a device).")
        names = members(path)
    except DataError as error:
        if single or (claims_data(path.name) and path.suffix.lower() != ".zip"):
            raise
        return [(path.name, left_out(path.name, "other", None, why_ignored(path.name, error)))]
    if len(names) < 2:
        claims = single or claims_data(path.name)
        return [(path.name, found) for found in _one(path, None, options, claims=claims, single=single)]
    inside = [name for name in names if not is_side_file(name.rpartition("/")[2])]
    if WORKBOOK_PART in names:
        return _workbook(path, single=single)
    opened = [(name, _member(path, name, options)) for name in inside]
    return [(f"{path.name}!{name}", found) for name, several in opened for found in several]


def _is_document(name: str) -> bool:
    return name.lower().partition(".")[0] in DOCUMENT_STEMS


def _member(path: Path, name: str, options: TextOptions) -> list[Found]:
    """What a file of a zip is."""
    if _is_document(name.rpartition("/")[2]):
        return [left_out(f"{path.name}!{name}", "other", None, NOT_BY_NAME)]
    return _one(path, name, options, claims=claims_data(name), single=False)


def _workbook(path: Path, *, single: bool) -> list[tuple[str, Found]]:
    error = DataError(f"{path.name}: an Excel workbook. Save its sheet as CSV.")
    if single:
        raise error
    return [(path.name, left_out(path.name, "other", None, why_ignored(path.name, error)))]


def _one(path: Path, member: str | None, options: TextOptions, *, claims: bool, single: bool) -> list[Found]:
    """What one file is: a recording of mixed schemas is one for each of them.

    Args:
        path: the file.
        member: which file of a zip.
        options: what the user says of text files.
        claims: whether it must be market data, so that damage is refused and not passed over.
        single: whether the user named this file.
    """
    name = path.name if member is None else f"{path.name}!{member}"
    try:
        source = probe(path, member)
        if source.content == "dbn":
            return _dbn(source, single=single)
        if source.content == "empty" and not single:
            return [left_out(name, EMPTY, None, "the file is empty, as after a download that failed")]
        if claims:
            _refuse_foreign(source)
    except DataError as error:
        if claims and (member or path.suffix.lower() != ".zip"):
            raise
        return [left_out(name, "other", None, why_ignored(name, error))]
    if not claims and source.content not in ("parquet", "arrow"):
        return [left_out(name, "other", None, NOT_BY_NAME)]
    try:
        return [open_table(source, options)]
    except DataError as error:
        if single:
            raise
        return [error]


def _dbn(source: Source, *, single: bool) -> list[Found]:
    header = read_header(source)
    read = [part for part in parts(header) if part.schema in READ_SCHEMAS]
    if read:
        return [DbnFile(source, part) for part in read]
    held = f"the schema {header.schema}" if header.schema else "records of schemas that are not read"
    need = NEED.get(str(header.schema), "bars, trades or quotes are needed; download ohlcv-1m or trades")
    if single:
        raise DataError(f"{source.name}: holds {held}; {need}.")
    kind = DbnFile(source, header).kind
    return [left_out(source.name, kind, header.schema, f"ignored: holds {held}; {need}")]


def _refuse_foreign(source: Source) -> None:
    """Refuse files that are market data by their name or magic and cannot be read."""
    name = source.name
    if source.content == "empty":
        raise DataError(f"{name}: the file is empty. Download it again, or remove it.")
    if source.content == "dbz":
        raise DataError(
            f"{name}: DBZ, the format before DBN. Convert it with Databento's `dbn` tool, or download it again as DBN."
        )
    if source.content == "dbn fragment":
        raise DataError(
            f"{name}: no DBN header: a fragment without metadata, or damaged, so its instruments have no names. "
            "Download a whole DBN file."
        )
    if source.content == "binary":
        raise DataError(f"{name}: binary data of no known format; DBN, CSV, Parquet and Feather are read.")
    if source.content == "text" and ".dbn" in name.lower():
        first = source.head[:60].decode(errors="replace").partition("\n")[0]
        raise DataError(f"{name}: named DBN but holds text ({first!r}). Name it .csv if it is CSV.")
