"""Hostile and damaged bytes: a correct table or a clear refusal, and never more memory than the file deserves."""

import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.fuzzing import GOOD, MUTATIONS, cases, fuzz, outcome, read
from tidewalk.core.errors import TidewalkError

MOST_GROWTH_KIB = 400 << 10


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def table(counts: Counter[tuple[str, str]]) -> str:
    """Counts of outcomes by format."""
    heads = sorted({found for _, found in counts})
    names = sorted({name for name, _ in counts})
    lines = [f"{'':<20}" + "".join(f"{head:>24}" for head in heads)]
    lines += [f"{name:<20}" + "".join(f"{counts[name, head]:>24,}" for head in heads) for name in [*names]]
    total = [sum(counts[name, head] for name in names) for head in heads]
    return "\n".join([*lines, f"{f'all {sum(total):,}':<20}" + "".join(f"{count:>24,}" for count in total)])


def fuzzed(folder: Path, rounds: int) -> Counter[tuple[str, str]]:
    before = peak_kib()
    counts, bad = fuzz(folder, rounds, seed=20_261_130)
    assert bad == [], table(counts)
    assert peak_kib() - before < MOST_GROWTH_KIB
    return counts


def test_every_case_is_valid_before_it_is_damaged(tmp_path: Path) -> None:
    prints = {}
    for case in cases():
        path = tmp_path / f"ES{case.suffix}"
        path.write_bytes(case.pack(case.inner))
        prints[case.name] = read(path, case).fingerprint
        assert case.unpack(case.pack(case.inner)) == case.inner
    # A container changes nothing.
    assert prints["dbn v1"] == prints["dbn v2"] == prints["dbn v3"] == prints["dbn zst"] == prints["dbn gz"]
    assert prints["dbn zip"] == prints["dbn zst v1"] == prints["dbn v3"] == prints["dbn live"]
    assert prints["csv"] == prints["csv gz"] == prints["csv zst"] == prints["csv zip"] == prints["csv quoted"]


def test_damaged_files_are_refused_or_read_correctly(tmp_path: Path) -> None:
    counts = fuzzed(tmp_path, 400)
    assert sum(counts.values()) == 400
    assert sum(count for (_, found), count in counts.items() if found == "refused") > 100


def test_a_reader_that_crashes_or_changes_content_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases()[0]
    content = case.pack(case.inner)

    def panic(_: object) -> None:
        raise BaseException("panicked")  # what pyo3 makes of a panic

    assert outcome(tmp_path, case, content, "another") == "changed"
    truth = read(tmp_path / case.name / "ES.dbn", case)
    moved = replace(truth.tables[0], close_e9=truth.tables[0].close_e9 + 1)
    monkeypatch.setattr("data.fuzzing.load_bars", lambda _: replace(truth, tables=(moved,), fingerprint="another"))
    assert outcome(tmp_path, case, content, "") == "bars that the file does not hold"
    monkeypatch.setattr("data.fuzzing.load_bars", panic)
    assert outcome(tmp_path, case, content, "") == "BaseException: panicked"
    monkeypatch.setattr("data.fuzzing.validate", panic)
    assert outcome(tmp_path, case, content, "") not in GOOD


def damaged_markets(
    folder: Path, rounds: int, save: Callable[[Path], None], load: Callable[[Path], Any], refusals: tuple[type, ...]
) -> Counter[tuple[str, str]]:
    """Outcomes for a prepared market; what is loaded from a damaged file is the market that was saved."""
    path = folder / "market.npz"
    save(path)
    good, truth = path.read_bytes(), load(path)
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(rounds):
        draw = np.random.default_rng([7, number])
        data = bytearray(good)
        for _ in range(int(draw.integers(1, 4))):
            data = MUTATIONS[int(draw.integers(len(MUTATIONS)))](data, draw) if data else data
        path.write_bytes(bytes(data))
        try:
            found = load(path)
        except refusals:
            counts["market", "refused"] += 1
        else:
            counts["market", "loaded"] += 1
            for field in fields(truth):
                assert np.array_equal(getattr(found, field.name), getattr(truth, field.name)), (number, field.name)
    return counts


@pytest.mark.parametrize("rounds", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_damaged_prepared_markets_are_refused_or_whole(tmp_path: Path, rounds: int) -> None:
    from support import planted_market
    from tidewalk.market.device import load_market, save_market

    before = peak_kib()
    counts = damaged_markets(
        tmp_path, rounds, lambda path: save_market(path, planted_market(days=2)), load_market, (TidewalkError,)
    )
    print(table(counts))
    assert peak_kib() - before < MOST_GROWTH_KIB


@pytest.mark.parametrize("rounds", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_damaged_cache_entries_are_never_used(tmp_path: Path, rounds: int) -> None:
    from support import planted_market
    from tidewalk.market.entry import UnusableError, load_entry, save_entry

    key, refusals = "ab" * 32, (TidewalkError, UnusableError, OSError)
    counts = damaged_markets(
        tmp_path,
        rounds,
        lambda path: save_entry(path, key, planted_market(days=2)),
        lambda path: load_entry(path, key),
        refusals,
    )
    print(table(counts))


@pytest.mark.slow
def test_twenty_thousand_damaged_files(tmp_path: Path) -> None:
    print("\n" + table(fuzzed(tmp_path, 20_000)))
