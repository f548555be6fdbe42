"""`data_quality.json` of a run: what reading the market data assumed, left out, counted or doubts."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidewalk.store.checks import check_keys
from tidewalk.store.layout import RunFolder, read_object, write_json_atomic

QUALITY_SCHEMA = 1
FINDING_KEYS = ("defect", "text", "count", "is_warning", "file")


def write_quality(run: RunFolder, symbols: Sequence[Mapping[str, object]]) -> None:
    """Writes data_quality.json: for every symbol its files, the findings in them, and the fingerprint of its bars."""
    quality = {"schema": QUALITY_SCHEMA, "symbols": list(symbols)}
    _check_quality(run.quality.name, quality)
    write_json_atomic(run.quality, quality)


def read_quality(run: RunFolder) -> dict[str, Any]:
    """Content of data_quality.json, checked as when written."""
    quality = read_object(run.quality)
    _check_quality(str(run.quality), quality)
    return quality


def _check_quality(where: str, value: Any) -> None:
    check_keys(where, value, ("schema", "symbols"))
    for index, symbol in enumerate(value["symbols"]):
        place = f"{where}: symbols[{index}]"
        check_keys(place, symbol, ("symbol", "data_fingerprint", "files", "findings"))
        for number, finding in enumerate(symbol["findings"]):
            check_keys(f"{place}.findings[{number}]", finding, FINDING_KEYS)
