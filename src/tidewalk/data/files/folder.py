"""Which files of a directory can be market data, and what a vendor's side files say of them."""

import json
from pathlib import Path

from tidewalk.core.errors import ConfigError, DataError, listed
from tidewalk.data.checks.quality import Finding

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab", ".asc", ".prn")
ARCHIVE_SUFFIXES = (".zst", ".gz", ".zip")
DATA_SUFFIXES = (*TEXT_SUFFIXES, ".dbn", ".dbz", ".frag", ".parquet", ".feather", ".arrow", ".ipc", ".scid", ".xlsx")
DOCUMENT_STEMS = ("readme", "license", "licence", "changelog", "notice", "manifest", "sha256sums", "md5sums")
CONDITION_FILE = "condition.json"
SIDE_STEMS = ("condition", "metadata", "manifest", "symbology", "sha256sums", "md5sums", "checksums")
SIDE_FILES = ("symbology.csv", "thumbs.db", "desktop.ini")
SIDE_SUFFIXES = (".md5", ".sha256", ".sha1", ".sfv")
GOOD_CONDITIONS = ("available",)
MAX_CONDITION_BYTES = 1 << 24


def is_side_file(name: str) -> bool:
    """Whether a file is put beside data by a vendor or the system and is passed over without a word."""
    name = name.lower()
    stem, _, rest = name.partition(".")
    by_stem = stem in SIDE_STEMS and rest in ("", "json")
    return by_stem or name.startswith(".") or name.endswith(SIDE_SUFFIXES) or name in SIDE_FILES


def claims_data(name: str) -> bool:
    """Whether a file is market data by its name, so that damage to it must not be passed over."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    plain = [suffix for suffix in suffixes if suffix not in ARCHIVE_SUFFIXES]
    # An archive alone counts as text, which its content will confirm.
    return plain[-1] in DATA_SUFFIXES if plain else bool(suffixes)


def listing(data_dir: Path) -> tuple[list[Path], list[Finding]]:
    """Files of a directory in the order of their names, and findings on its subdirectories.

    Subdirectories are not read, with one exception: a directory that holds no data file itself and one subdirectory
    that does, as a batch download is unpacked.

    Raises:
        ConfigError: it cannot be listed.
        DataError: it holds no files, or only subdirectories several of which hold data.
    """
    files, folders = _entries(data_dir)
    if any(map(_is_data, files)) or not folders:
        if not files:
            raise DataError(f"--data-dir {data_dir}: the directory holds no files.")
        return files, _not_read(folders)
    inside = {folder: found for folder in folders if (found := _entries(folder)[0]) and any(map(_is_data, found))}
    if len(inside) > 1:
        names = ", ".join(folder.name for folder in list(inside)[:8])
        raise DataError(
            f"--data-dir {data_dir}: no data files, but {len(inside)} subdirectories with some: {names}. Point "
            "--data-dir at one of them."
        )
    if not inside:
        if not files:
            raise DataError(f"--data-dir {data_dir}: the directory holds no files.")
        return files, _not_read(folders)
    folder, found = next(iter(inside.items()))
    text = f"the directory holds no data files itself; its subdirectory {folder.name} is read"
    others = [other for other in folders if other != folder]
    return found, [Finding("other-schema", text, len(found)), *_not_read(others)]


def _is_data(path: Path) -> bool:
    return claims_data(path.name) and not is_side_file(path.name)


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files and subdirectories, by name."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"--data-dir {folder}: cannot be listed ({error.strerror}).") from error
    folders = [path for path in entries if path.is_dir()]
    return [path for path in entries if not path.is_dir()], [path for path in folders if not path.name.startswith(".")]


def _not_read(folders: list[Path]) -> list[Finding]:
    names = ", ".join(folder.name for folder in folders[:8]) + (" ..." if len(folders) > 8 else "")
    return [Finding("other-schema", f"subdirectories are not read: {names}", len(folders))] if folders else []


def poor_days(path: Path) -> list[Finding]:
    """Days that Databento's `condition.json` does not call good, by condition; a file in another form says so."""
    try:
        with path.open("rb") as stream:
            entries = json.loads(stream.read(MAX_CONDITION_BYTES))
        days = [(str(entry["condition"]), str(entry["date"])) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        text = "not in the form that is known; what it says of the days is not used"
        return [Finding("request", text, file=path.name)]
    poor: dict[str, list[str]] = {}
    for condition, date in sorted(days):
        if condition not in GOOD_CONDITIONS:
            poor.setdefault(condition, []).append(date)
    lines = [
        (f"the vendor calls the data of {listed(dates, 6, 'days')} {name}", len(dates)) for name, dates in poor.items()
    ]
    return [Finding("request", text, count, is_warning=True, file=path.name) for text, count in lines]
