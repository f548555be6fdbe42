"""Which schema of a directory bars are made of."""

from pathlib import Path

import pytest

from data.market_files import header, put
from tidewalk.core.errors import DataError
from tidewalk.data.events.bar_rule import parse_bar_rule
from tidewalk.data.files.catalog import catalogue
from tidewalk.data.files.roles import Roles, assign


def roles(folder: Path, *schemas: str, schema: str | None = None, rule: str | None = None) -> Roles:
    for name in schemas:
        put(folder, f"{name}.dbn", header(schema=name))
    return assign(catalogue(folder).dbn, schema, parse_bar_rule(rule) if rule else None)


@pytest.mark.parametrize(
    ("schemas", "rule", "chosen"),
    [
        (("ohlcv-1m", "trades", "bbo-1m", "definition", "statistics"), None, "ohlcv-1m"),
        (("trades", "tbbo", "mbp-1"), None, "trades"),
        (("tbbo", "bbo-1m"), None, "tbbo"),
        (("mbp-1", "bbo-1s"), None, "mbp-1"),
        (("bbo-1m", "definition"), None, "bbo-1m"),
        (("definition", "statistics"), None, None),
        (("ohlcv-1m", "trades"), "tick:100", "trades"),
        (("ohlcv-1m", "mbp-1"), "volume:100", "mbp-1"),
        (("ohlcv-1m", "trades"), "5m", "ohlcv-1m"),
        (("ohlcv-1s", "ohlcv-1m", "ohlcv-1h"), "5m", "ohlcv-1m"),
        (("ohlcv-1s", "ohlcv-1m", "ohlcv-1h"), "1h", "ohlcv-1h"),
        (("ohlcv-1s", "ohlcv-1m"), "90s", "ohlcv-1s"),
    ],
)
def test_bars_before_trades_before_quotes(
    tmp_path: Path, schemas: tuple[str, ...], rule: str | None, chosen: str | None
) -> None:
    found = roles(tmp_path, *schemas, rule=rule)
    assert found.schema == chosen
    assert [file.header.schema for file in found.primary] == ([chosen] if chosen else [])
    assert [file.header.schema for file in found.definitions] == [name for name in schemas if name == "definition"]


@pytest.mark.parametrize(
    ("schemas", "message"),
    [
        (
            ("ohlcv-1m", "ohlcv-1h", "trades"),
            r"several bar lengths: ohlcv-1h in .*, ohlcv-1m in .*Choose one with --schema",
        ),
        (("bbo-1m", "bbo-1s"), r"several schemas of quotes: bbo-1m in .*, bbo-1s in .*for example --schema bbo-1m"),
    ],
)
def test_two_of_a_kind_are_refused_with_the_flag_that_settles_it(
    tmp_path: Path, schemas: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        roles(tmp_path, *schemas)
    assert roles(tmp_path, *schemas, schema=schemas[1]).schema == schemas[1]


def test_a_schema_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--schema trades: no such file; the DBN files hold bbo-1m, ohlcv-1m"):
        roles(tmp_path, "bbo-1m", "ohlcv-1m", "definition", schema="trades")


def test_everything_with_quotes_gives_the_spread(tmp_path: Path) -> None:
    found = roles(tmp_path, "ohlcv-1m", "tbbo", "bbo-1m", "mbp-1", "trades")
    assert [file.header.schema for file in found.quotes] == ["mbp-1", "bbo-1m", "tbbo"]
    assert [file.path for file in found.rest] == ["trades.dbn"]
