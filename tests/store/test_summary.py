"""The contract of summary.json: exact keys, every null explained, money that adds up."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from store.made_up_summary import summary
from tidewalk.core.errors import StoreError
from tidewalk.store import layout
from tidewalk.store.checks import null_paths
from tidewalk.store.layout import RunFolder
from tidewalk.store.summary import (
    FIGURES,
    PER_SYMBOL_KEYS,
    PER_WINDOW_KEYS,
    SUMMARY_KEYS,
    read_summary,
    undefined_warning,
    validate_summary,
    write_summary,
)

PARTS = (
    "transfers",
    "phases_ms",
    "oos",
    "baselines",
    "oracle",
    "over_seeds",
    "overfitting",
    "cost_surface",
    "reconciled",
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return layout.create_run(tmp_path / "run", overwrite=False)


def test_summary_comes_back(run: RunFolder) -> None:
    write_summary(run, summary())
    assert read_summary(run) == summary()
    assert list(json.loads(run.summary.read_text())) == list(summary())


# The contract of the documented summary, key by key.
def test_summary_keys_are_the_documented_ones() -> None:
    assert SUMMARY_KEYS["summary"] == tuple(summary())
    for part in PARTS:
        assert SUMMARY_KEYS[part] == tuple(summary()[part])
    assert tuple(summary()["per_window"][0]) == PER_WINDOW_KEYS
    row = summary()["per_symbol"][0]
    assert {"symbol": tuple(row)} | {
        part: tuple(row[part]) for part in ("oos", "baselines", "oracle", "costs")
    } == PER_SYMBOL_KEYS


def test_every_key_is_explained_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
    keys = {key for part in (*SUMMARY_KEYS.values(), *PER_SYMBOL_KEYS.values(), PER_WINDOW_KEYS) for key in part}
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []


def test_every_key_of_the_summary_is_required() -> None:
    for part in (None, *PARTS):
        for key in summary()[part] if part else summary():
            bad = summary()
            del (bad[part] if part else bad)[key]
            with pytest.raises(StoreError, match=rf"summary{f': {part}' if part else ''}: key '{key}' is missing"):
                validate_summary(bad)
    for key in PER_WINDOW_KEYS:
        bad = summary()
        del bad["per_window"][1][key]
        with pytest.raises(StoreError, match=rf"summary: per_window\[1\]: key '{key}' is missing"):
            validate_summary(bad)


def test_unknown_keys_are_refused_but_in_the_rows_of_windows() -> None:
    with pytest.raises(StoreError, match=r"summary: oos: key 'sharpe' is not one of"):
        validate_summary(summary() | {"oos": summary()["oos"] | {"sharpe": 1.0}})
    with pytest.raises(StoreError, match=r"summary: key 'symbols' .* \(did you mean symbol\?\)"):
        validate_summary(summary() | {"symbols": []})
    good = summary()
    good["per_window"][0]["note"] = "half a day on the 3rd"
    validate_summary(good)


def put(value: dict[str, Any], path: str, item: Any) -> dict[str, Any]:
    """The summary with `item` at a dotted path."""
    *parents, last = path.split(".")
    inner: Any = value
    for key in parents:
        inner = inner[int(key)] if key.isdigit() else inner[key]
    inner[last] = item
    return value


NULLS = [
    ("oos.psr", "oos.psr"),
    ("oos.sharpe_ci90", "oos.sharpe_ci90"),
    ("phases_ms.collect", "phases_ms.collect"),
    ("device", "device"),
    ("oracle", "oracle"),
    ("per_window.1.oracle_usd", "per_window[1].oracle_usd"),
]


@pytest.mark.parametrize(("path", "name"), NULLS)
def test_null_needs_a_warning_that_names_it(path: str, name: str) -> None:
    bad = put(summary(), path, None)
    assert null_paths(bad) == [name]
    for warnings in ([], ["something is undefined"], [undefined_warning(name + "_x", "no variance")]):
        with pytest.raises(StoreError) as caught:
            validate_summary(bad | {"warnings": warnings})
        assert f"summary: {name} is null, and no warning names '{name}' with the reason" in str(caught.value)
    validate_summary(bad | {"warnings": ["note", undefined_warning(name, "no variance")]})


def test_warning_without_index_explains_all_rows_and_no_more() -> None:
    bad = put(put(summary(), "per_window.0.long_usd", None), "per_window.1.long_usd", None)
    validate_summary(bad | {"warnings": ["per_window.long_usd is undefined: no bars"]})
    for other in ("per_window[0].long_usd is undefined: no bars", "window.long_usd: no bars", "long_usd", "per_window"):
        with pytest.raises(StoreError, match=r"per_window\[\d\]\.long_usd is null"):
            validate_summary(bad | {"warnings": [other]})


def test_warning_of_a_longer_path_explains_nothing() -> None:
    bad = put(summary(), "oracle", None)
    for other in ("oracle.net_usd is undefined: x", "the.oracle is undefined", "oracles are undefined"):
        with pytest.raises(StoreError, match="summary: oracle is null"):
            validate_summary(bad | {"warnings": [other]})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_summary_never_holds_nan(bad: float) -> None:
    with pytest.raises(StoreError, match=r"summary\.oos\.sharpe_ci90\[1\] is (nan|inf)"):
        validate_summary(put(summary(), "oos.sharpe_ci90", [0.1, bad]))


@pytest.mark.parametrize(
    ("path", "item", "message"),
    [
        ("schema", 1, "schema is 1, this version reads 2: another version of tidewalk wrote it"),
        ("status", "done", "status is 'done', needed is one of complete, interrupted, failed"),
        ("oos.net_usd", 91.5, "summary: oos: net_usd is 91.5, which is not gross_usd 200.0 less costs_usd 18.0"),
        ("oos.fees_usd", 11.0, "oos: costs_usd is 18.0, which is not fees_usd 11.0 and slippage_usd 8.0 together"),
        ("per_symbol.0.oos.slippage_usd", 9.0, r"per_symbol\[0\]\.oos: costs_usd is 18.0, which is not"),
        ("reconciled.trades_usd", 181.99, "reconciled.trades_usd is 181.99, oos.net_usd is 182.0"),
        ("per_window.1.costs_usd", 8.0, r"per_window\[1\]: net_usd is 91.0, which is not gross_usd 100.0 less costs"),
        ("transfers", 1, "summary: transfers: int found, an object with uploads"),
    ],
)
def test_summary_that_contradicts_itself_is_refused(path: str, item: Any, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        validate_summary(put(summary(), path, item))


def test_windows_and_symbols_add_up_to_the_whole() -> None:
    less = summary()
    less["per_window"][1] |= {"net_usd": 90.0, "gross_usd": 99.0}
    with pytest.raises(StoreError, match=r"per_window adds up to 181\.0 USD net, oos\.net_usd is 182\.0"):
        validate_summary(less)
    twice = summary()
    twice["per_symbol"] *= 2
    with pytest.raises(StoreError, match=r"per_symbol adds up to 364\.0 USD net"):
        validate_summary(twice)


def test_unfinished_run_has_a_summary_without_figures(run: RunFolder) -> None:
    warnings = [undefined_warning(part, "the run is interrupted") for part in FIGURES]
    unfinished = summary() | dict.fromkeys(FIGURES) | {"status": "interrupted", "per_window": [], "warnings": warnings}
    write_summary(run, unfinished)
    assert read_summary(run)["oos"] is None


def test_undefined_figures_of_several_symbols_need_a_reason_each() -> None:
    row = summary()["per_symbol"][0]
    halves = {key: row["oos"][key] / 2 for key in ("net_usd", "gross_usd", "costs_usd", "fees_usd", "slippage_usd")}
    half = copy.deepcopy(row) | {"oos": row["oos"] | halves}
    odd = copy.deepcopy(half) | {"symbol": "NQ.FUT", "oos": half["oos"] | {"psr": None}}
    both = summary() | {"per_symbol": [half, odd]}
    with pytest.raises(StoreError, match=r"per_symbol\[1\]\.oos\.psr is null"):
        validate_summary(both)
    validate_summary(both | {"warnings": [undefined_warning("per_symbol[1].oos.psr", "no variance")]})
    alone = copy.deepcopy(row) | {"oos": row["oos"] | {"psr": None}}
    validate_summary(summary() | {"per_symbol": [alone]})  # of one symbol: said of the study already
    dear = copy.deepcopy(row) | {"oos": row["oos"] | {"costs_usd": 1.0}}
    with pytest.raises(StoreError, match=r"per_symbol\[0\]\.oos: net_usd is"):
        validate_summary(summary() | {"per_symbol": [dear]})
