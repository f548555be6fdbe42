"""What each DBN file of a directory is used for: bars come from one schema, others add specifications and spreads.

Without `--schema` bars are preferred to trades and trades to quotes; where two schemas of one kind are there the
request is refused, for which is meant is not ours to guess. Definitions, statistics and quotes are never in the way:
they add to the bars what they know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidewalk.core.errors import DataError, listed
from tidewalk.data.bars import E9, SourceFile
from tidewalk.data.dbn.header import Mapping
from tidewalk.data.dbn.layouts import INTERVAL_NS_BY_SCHEMA
from tidewalk.data.events.bar_rule import BarRule
from tidewalk.data.events.quotes import QUOTE_SCHEMAS, SAMPLED_SCHEMAS, TRADE_SCHEMAS
from tidewalk.data.files.catalog import DbnFile, left_out

BAR_SCHEMAS = tuple(INTERVAL_NS_BY_SCHEMA)
PRIMARY_SCHEMAS = tuple(dict.fromkeys((*BAR_SCHEMAS, *TRADE_SCHEMAS, *SAMPLED_SCHEMAS)))
"""Schemas that bars can be made of."""


@dataclass(frozen=True)
class Roles:
    """DBN files by what they are used for; the primary ones have mappings.

    Attributes:
        schema: schema that bars are made of, None where no file holds one.
        primary: files of that schema.
        quotes: files whose quotes give the spread, the primary ones among them where they have quotes.
        definitions: files of contract specifications.
        statistics: files of open interest.
        rest: files of other schemas.
    """

    schema: str | None
    primary: tuple[DbnFile, ...]
    quotes: tuple[DbnFile, ...]
    definitions: tuple[DbnFile, ...]
    statistics: tuple[DbnFile, ...]
    rest: tuple[SourceFile, ...]


def assign(files: Sequence[DbnFile], schema: str | None, rule: BarRule | None) -> Roles:
    """The use of every DBN file.

    Args:
        files: of `READ_SCHEMAS`.
        schema: as asked for.
        rule: as asked for.

    Raises:
        DataError: it is open which schema is meant, the one asked for is not there, or a file has no symbol mappings
            and nothing else says what its instruments are.
    """
    chosen = _primary_schema(files, schema, rule)
    definitions = [file for file in files if file.header.schema == "definition"]
    files = [_mapped(file, definitions) if file.header.schema == chosen else file for file in files]
    primary = [file for file in files if chosen is not None and file.header.schema == chosen]
    statistics = [file for file in files if file.header.schema == "statistics"]
    # The content decides the order, and with it which of two quotes of one moment is taken for the later one.
    quotes = [file for file in files if file.header.schema in QUOTE_SCHEMAS]
    quotes.sort(key=lambda file: (QUOTE_SCHEMAS.index(str(file.header.schema)), file.source.head))
    used = {file.source.name for file in (*primary, *definitions, *statistics, *quotes)}
    reason = f"--schema {schema} was asked for" if schema else f"bars come from {chosen}"
    rest = [
        left_out(file.source.name, file.kind, file.header.schema, f"ignored: {reason}")
        for file in files
        if file.source.name not in used
    ]
    return Roles(chosen, tuple(primary), tuple(quotes), tuple(definitions), tuple(statistics), tuple(rest))


def _primary_schema(files: Sequence[DbnFile], schema: str | None, rule: BarRule | None) -> str | None:
    held = [name for name in PRIMARY_SCHEMAS if any(file.header.schema == name for file in files)]
    if schema is not None:
        if held and schema not in held:
            raise DataError(f"--schema {schema}: no such file; the DBN files hold {', '.join(sorted(held))}.")
        return schema if held else None
    trades = [name for name in TRADE_SCHEMAS if name in held]
    if rule is not None and rule.kind != "time":
        return trades[0] if trades else held[0] if held else None
    bars = [name for name in BAR_SCHEMAS if name in held]
    if rule is not None and len(bars) > 1:
        exact = [name for name in bars if rule.amount * E9 % INTERVAL_NS_BY_SCHEMA[name] == 0]
        bars = exact[-1:] or bars
    sampled = [name for name in SAMPLED_SCHEMAS if name in held]
    if len(bars) > 1:
        raise _ambiguous(files, bars, "bar lengths")
    if bars or trades:
        return (bars or trades)[0]
    if len(sampled) > 1:
        raise _ambiguous(files, sampled, "schemas of quotes")
    return sampled[0] if sampled else None


def _ambiguous(files: Sequence[DbnFile], schemas: Sequence[str], what: str) -> DataError:
    found = ", ".join(f"{name} in {_names(files, name)}" for name in sorted(schemas))
    return DataError(f"several {what}: {found}. Choose one with --schema, for example --schema {sorted(schemas)[0]}.")


def _names(files: Sequence[DbnFile], schema: str) -> str:
    names = [file.source.name for file in files if file.header.schema == schema]
    return listed(names, 3)


def _mapped(file: DbnFile, definitions: Sequence[DbnFile]) -> DbnFile:
    """The file with mappings: its own, else those that definitions of the same dataset give.

    Raises:
        DataError: it has none.
    """
    if file.header.mappings:
        return file
    found = mappings_of([other for other in definitions if other.header.dataset == file.header.dataset])
    if not found:
        asked = ", ".join(file.header.symbols[:4]) or "no symbols, as in a live recording"
        raise DataError(
            f"{file.source.name}: the header has no symbol mappings (request for {asked}), so records cannot be told "
            "apart. Download named symbols, such as ES.FUT with stype_in parent, or put a definition file of the same "
            "days beside it."
        )
    return replace(file, header=replace(file.header, mappings=found))


def mappings_of(files: Sequence[DbnFile]) -> tuple[Mapping, ...]:
    """Mappings of several files, sorted, each once."""
    return tuple(sorted({entry for file in files for entry in file.header.mappings}))
