"""What the files of a directory are: DBN and tables of bars, files of other schemas, and files that are no data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.bars import SourceFile
from tidewalk.data.dbn import RTYPE_BY_SCHEMA, DbnHeader, read_header
from tidewalk.data.source import Source, probe
from tidewalk.data.table import Header, open_table

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab", ".asc", ".prn")
ARCHIVE_SUFFIXES = (".zst", ".gz", ".zip")
DATA_SUFFIXES = (*TEXT_SUFFIXES, ".dbn", ".dbz", ".frag", ".parquet", ".feather", ".arrow", ".ipc", ".scid", ".xlsx")
DOCUMENT_STEMS = ("readme", "license", "licence", "changelog", "notice", "manifest", "sha256sums", "md5sums")


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
        dbn: DBN files of OHLCV schemas.
        tables: text, Parquet and Arrow files of bars.
        ignored: files left out, each with the reason.
        unreadable: tables that could not be understood, by name, with the error each gave.
        notes: subdirectories left out.
    """

    dbn: tuple[DbnFile, ...]
    tables: tuple[Header, ...]
    ignored: tuple[SourceFile, ...]
    unreadable: dict[str, DataError]
    notes: tuple[str, ...]


def catalogue(data_dir: Path) -> Catalog:
    """What a directory (its own files, not those of subdirectories) or a single file holds.

    Raises:
        ConfigError: the path does not exist.
        DataError: it is empty, a single file is not one of bars, or a file named as market data is damaged.
    """
    if not data_dir.exists():
        raise ConfigError(f"--data-dir {data_dir}: no such file or directory.")
    paths, notes = _listing(data_dir)
    dbn: list[DbnFile] = []
    tables: list[Header] = []
    ignored: list[SourceFile] = []
    unreadable: dict[str, DataError] = {}
    for path in paths:
        found = _open(path, single=not data_dir.is_dir())
        if isinstance(found, DbnFile):
            dbn.append(found)
        elif isinstance(found, Header):
            tables.append(found)
        elif isinstance(found, SourceFile):
            ignored.append(found)
        else:
            unreadable[path.name] = found
    return Catalog(tuple(dbn), tuple(tables), tuple(ignored), unreadable, notes)


def _listing(data_dir: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Files in the order of their names, and a note on the subdirectories that are left out."""
    if not data_dir.is_dir():
        return [data_dir], ()
    try:
        entries = sorted(data_dir.iterdir())
    except OSError as error:
        raise ConfigError(f"--data-dir {data_dir}: cannot be listed ({error.strerror}).") from error
    folders = [path.name for path in entries if path.is_dir()]
    files = [path for path in entries if not path.is_dir()]
    if not files:
        raise DataError(f"--data-dir {data_dir}: the directory holds no files.")
    return files, (f"subdirectories are not read: {', '.join(folders[:8])}",) if folders else ()


def left_out(name: str, kind: str, schema: str | None, reason: str) -> SourceFile:
    """Account of a file that is not used."""
    return SourceFile(name, kind, schema, 0, 0, None, None, (reason,))


def _open(path: Path, *, single: bool) -> DbnFile | Header | SourceFile | DataError:
    if not single and (path.name.startswith(".") or path.name.lower().partition(".")[0] in DOCUMENT_STEMS):
        return left_out(path.name, "other", None, "ignored: not market data by its name")
    claims_data = single or _suffix(path) in DATA_SUFFIXES
    try:
        if not path.is_file():
            raise DataError(f"{path.name}: not a regular file (a broken link, a pipe or a device).")
        source = probe(path)
        if source.content == "dbn":
            return _dbn(source, single=single)
        if claims_data:
            _refuse_foreign(source)
    except DataError as error:
        if claims_data and path.suffix.lower() != ".zip":
            raise
        return left_out(path.name, "other", None, f"ignored: {error}")
    if not claims_data and source.content not in ("parquet", "arrow"):
        return left_out(path.name, "other", None, "ignored: not market data by its name")
    try:
        return open_table(source)
    except DataError as error:
        if single:
            raise
        return error


def _suffix(path: Path) -> str:
    """Last suffix that is no archive's; an archive alone counts as text, which its content will confirm."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    plain = [suffix for suffix in suffixes if suffix not in ARCHIVE_SUFFIXES]
    if suffixes and not plain:
        return ".csv"
    return plain[-1] if plain else ""


def _dbn(source: Source, *, single: bool) -> DbnFile | SourceFile:
    header = read_header(source)
    file = DbnFile(source, header)
    if header.schema in RTYPE_BY_SCHEMA:
        return file
    held = f"the schema {header.schema}" if header.schema else "records of mixed schemas (a live recording)"
    need = f"bars are needed: {', '.join(RTYPE_BY_SCHEMA)}"
    if single:
        raise DataError(f"{source.path.name}: holds {held}; {need}. Download one of these schemas.")
    return left_out(source.path.name, file.kind, header.schema, f"ignored: holds {held}; {need}")


def _refuse_foreign(source: Source) -> None:
    """Refuse files that are market data by their name or magic and cannot be read."""
    name = source.path.name
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


def only_schema(files: Sequence[DbnFile], schema: str | None) -> tuple[list[DbnFile], list[SourceFile]]:
    """DBN files of one schema, and an account of the others.

    Raises:
        DataError: several schemas and none asked for, or the one asked for is not there.
    """
    found = sorted({str(file.header.schema) for file in files})
    if schema is None and len(found) > 1:
        raise DataError(
            f"several bar lengths: {', '.join(f'{name} in {_names(files, name)}' for name in found)}. "
            f"Choose one with --schema, for example --schema {found[0]}."
        )
    if schema is not None and found and schema not in found:
        raise DataError(f"--schema {schema}: no such file; the DBN files hold {', '.join(found)}.")
    chosen = [file for file in files if schema in (None, file.header.schema)]
    rest = [
        left_out(file.source.path.name, file.kind, file.header.schema, f"ignored: --schema {schema} was asked for")
        for file in files
        if file not in chosen
    ]
    for file in chosen:
        if not file.header.mappings:
            raise DataError(
                f"{file.source.path.name}: the header has no symbol mappings (request for {_requested(file)}), so "
                "records cannot be told apart. Download named symbols, such as ES.FUT with stype_in parent."
            )
    return chosen, rest


def _requested(file: DbnFile) -> str:
    return ", ".join(file.header.symbols[:4]) or "no symbols, as in a live recording"


def _names(files: Sequence[DbnFile], schema: str) -> str:
    names = [file.source.path.name for file in files if file.header.schema == schema]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
