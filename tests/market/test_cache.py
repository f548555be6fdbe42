import dataclasses
import functools
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from market.test_entry import same
from support import planted_market
from tidewalk.core.errors import DataError
from tidewalk.data.load import DataConfig
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.market import cache as caching
from tidewalk.market.cache import OFF, VARIABLE, Cache, cached, market_key, open_cache
from tidewalk.market.device import MarketData
from tidewalk.market.prepare import SeriesConfig, prepare

SERIES = SeriesConfig()


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder, SampleConfig(months=2, volume=0.02))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    """Files that no reader has to understand: a key is made of bytes."""
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "data" / name).write_bytes(name.encode() * 50)
    return tmp_path / "data"


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(private_folder(tmp_path), keeps_all=True)


def private_folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


class Builder:
    """Builds a market and counts how often."""

    def __init__(self, make: Callable[[], MarketData] | None = None) -> None:
        self.make, self.count = make or (lambda: planted_market(days=3)), 0

    def __call__(self) -> MarketData:
        self.count += 1
        return self.make()


def data_of(folder: Path, **changes: object) -> DataConfig:
    return DataConfig(folder, "ES.FUT", **changes)


def entries(cache: Cache) -> list[Path]:
    return sorted(cache.folder.glob("*.market"))


# What the cache gives


@pytest.mark.parametrize("rule", ["volume", "calendar:8"])
def test_with_and_without_the_cache_the_market_is_the_same_bit_for_bit(sample, cache, rule):
    data, series, said = data_of(sample), SeriesConfig(roll=rule), []
    build = Builder(lambda: prepare(data, series).market)
    plain = cached(None, data, series, build, said.append)
    first = cached(cache, data, series, build, said.append)
    assert (build.count, said) == (2, [])
    again = cached(cache, data, series, build, said.append)
    assert build.count == 2
    assert same(plain, first)
    assert same(plain, again)
    assert again.info.notes == plain.info.notes
    assert said == [f"prepared before from the same files: {entries(cache)[0].name[:12]} in the cache {cache.folder}"]


def test_errors_of_the_reader_pass_and_nothing_is_kept(folder, cache):
    def fail() -> MarketData:
        raise DataError("no bars")

    with pytest.raises(DataError, match="no bars"):
        cached(cache, data_of(folder), SERIES, fail, print)
    assert list(cache.folder.iterdir()) == []


def test_a_path_that_is_not_there_is_left_to_the_reader(tmp_path, cache):
    assert market_key(data_of(tmp_path / "nowhere"), SERIES) is None
    build = Builder()
    cached(cache, data_of(tmp_path / "nowhere"), SERIES, build, print)
    assert build.count == 1


# The key: every byte, every setting, the code


def keys(*pairs: tuple[DataConfig, SeriesConfig]) -> set[str | None]:
    return {market_key(data, series) for data, series in pairs}


def test_place_dates_and_order_of_files_do_not_matter(folder, tmp_path):
    before = market_key(data_of(folder), SERIES)
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    os.utime(moved / "a.csv", (0, 0))
    assert market_key(data_of(moved), SERIES) == before


@pytest.mark.parametrize("file", ["a.csv", "b.csv"])
def test_every_byte_of_every_file_matters_at_the_same_size_and_date(folder, file):
    path = folder / file
    before, date = market_key(data_of(folder), SERIES), path.stat().st_mtime_ns
    for where in (0, 100, -1):
        raw = bytearray(path.read_bytes())
        raw[where] ^= 1
        path.write_bytes(raw)
        os.utime(path, ns=(date, date))
        assert market_key(data_of(folder), SERIES) != before
        raw[where] ^= 1
        path.write_bytes(raw)
    assert market_key(data_of(folder), SERIES) == before


def test_names_files_and_folders_beside_matter(folder):
    seen = {market_key(data_of(folder), SERIES)}
    (folder / "a.csv").rename(folder / "a2.csv")  # in the same place of the order
    seen.add(market_key(data_of(folder), SERIES))
    (folder / "a2.csv").rename(folder / "c.csv")
    seen.add(market_key(data_of(folder), SERIES))
    (folder / "empty.csv").touch()
    seen.add(market_key(data_of(folder), SERIES))
    (folder / "more").mkdir()
    seen.add(market_key(data_of(folder), SERIES))
    assert len(seen - {None}) == 5


def test_a_file_is_another_thing_than_a_folder_with_nothing_else_in_it(folder):
    (folder / "b.csv").unlink()
    assert market_key(data_of(folder), SERIES) != market_key(data_of(folder / "a.csv"), SERIES)


def test_swapped_contents_matter(folder):
    before = market_key(data_of(folder), SERIES)
    (folder / "a.csv").rename(folder / "x")
    (folder / "b.csv").rename(folder / "a.csv")
    (folder / "x").rename(folder / "b.csv")
    assert market_key(data_of(folder), SERIES) != before


def other(value: object) -> object:
    """Another value of a setting; what it means does not matter to a key."""
    return not value if isinstance(value, bool) else f"not {value}"


def test_every_setting_matters(folder):
    """Settings that are added later are found here without being named."""
    data = data_of(folder)
    changed = []
    for record in (data, SERIES):
        for field in dataclasses.fields(record):
            if field.name in ("data_dir", "features"):
                continue
            one = dataclasses.replace(record)
            value = "calendar:9" if field.name == "roll" else other(getattr(record, field.name))
            object.__setattr__(one, field.name, value)
            changed.append((one, SERIES) if record is data else (data, one))
    seen = keys((data, SERIES), *changed)
    assert None not in seen
    assert len(seen) == 1 + len(changed)


def test_the_content_of_the_roll_table_matters(folder, tmp_path):
    table = tmp_path / "rolls.csv"
    table.write_text("2022-03-15,ESM2\n")
    series = SeriesConfig(roll=f"table:{table}")
    before = market_key(data_of(folder), series)
    table.write_text("2022-03-16,ESM2\n")
    assert None not in {before, market_key(data_of(folder), series)}
    assert market_key(data_of(folder), series) != before
    table.unlink()
    assert market_key(data_of(folder), series) is None


@pytest.mark.parametrize("part", ["_code", "_versions", "_zone_digest"])
def test_code_libraries_and_time_zones_matter(folder, monkeypatch, part):
    before = market_key(data_of(folder), SERIES)
    answer = ("other code", caching._code()[1]) if part == "_code" else "other"
    monkeypatch.setattr(caching, part, lambda *_: answer)
    assert market_key(data_of(folder), SERIES) != before


def test_the_digest_of_the_code_covers_every_source_that_reads_or_prepares(tmp_path, monkeypatch):
    package = Path(caching.__file__).parents[1]
    shutil.copytree(package, tmp_path / "tidewalk", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(caching, "__file__", str(tmp_path / "tidewalk" / "market" / "cache.py"))
    before = caching._code.__wrapped__()
    assert before == caching._code.__wrapped__()
    assert "America/Chicago" in before[1]
    for name in (
        "core/errors.py",
        "data/load.py",
        "data/calendar/sessions.py",
        "market/features.py",
        "market/cache.py",
    ):
        source = tmp_path / "tidewalk" / name
        text = source.read_text()
        source.write_text(f"{text}#")
        assert caching._code.__wrapped__()[0] != before[0], name
        source.write_text(text)
    (tmp_path / "tidewalk" / "run" / "loop.py").write_text("")
    assert caching._code.__wrapped__() == before
    monkeypatch.setattr(caching, "__file__", str(tmp_path / "nowhere" / "market" / "cache.py"))
    with pytest.raises(OSError, match="no sources"):
        caching._code.__wrapped__()


def test_rules_of_the_zones_in_use_are_part_of_the_key(tmp_path, monkeypatch):
    monkeypatch.setattr(caching.zoneinfo, "TZPATH", (str(tmp_path),))
    zone = tmp_path / "America" / "Chicago"
    zone.parent.mkdir()
    seen = set()
    for rules in (b"old", b"new"):
        zone.write_bytes(rules)
        seen.add(caching._zone_digest.__wrapped__("America/Chicago"))
    assert len(seen - {None}) == 2
    assert caching._zone_digest.__wrapped__("America/Nowhere") is None


def test_markets_with_a_feature_set_of_the_users_own_are_not_kept(folder, cache):
    build, series = Builder(), SeriesConfig(features="mine:build")
    for _ in range(2):
        cached(cache, data_of(folder), series, build, print)
    assert build.count == 2
    assert entries(cache) == []


def test_input_too_large_to_digest_is_not_kept(folder, cache, monkeypatch):
    monkeypatch.setattr(caching, "MOST_INPUT_BYTES", 100)
    build = Builder()
    cached(cache, data_of(folder), SERIES, build, print)
    assert entries(cache) == []


# Damage, room, and folders that cannot be used


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other key"])
def test_a_damaged_entry_is_said_and_made_again(folder, cache, damage):
    build, said = Builder(), []
    get = functools.partial(cached, cache, data_of(folder), SERIES, build, said.append)
    get()
    (path,) = entries(cache)
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 4
    if damage == "other key":
        (folder / "c.csv").touch()  # the old entry is put where the new one is looked for
        path = path.rename(cache.folder / f"{market_key(data_of(folder), SERIES)}.market")
    path.write_bytes({"cut": raw[:-1], "empty": b""}.get(damage, raw))
    assert same(get(), planted_market(days=3))
    assert build.count == 2
    assert len(said) == 1
    assert said[0].startswith(f"warning: {path.name[:12]} in the cache {cache.folder} is damaged (")
    get()
    assert build.count == 2


def test_a_damaged_entry_goes_even_where_nothing_takes_its_place(folder, cache):
    cached(cache, data_of(folder), SERIES, Builder(), print)
    (path,) = entries(cache)
    path.write_bytes(b"")
    cached(Cache(cache.folder), data_of(folder), SERIES, Builder(), print)
    assert entries(cache) == []


def test_files_that_change_while_they_are_read_are_not_kept(folder, cache):
    def build() -> MarketData:
        (folder / "a.csv").write_text("another content")
        return planted_market(days=3)

    cached(cache, data_of(folder), SERIES, build, print)
    assert entries(cache) == []


def test_what_is_quick_to_prepare_is_kept_only_where_a_folder_was_named(folder, cache):
    unnamed = Cache(cache.folder)
    cached(unnamed, data_of(folder), SERIES, Builder(), print)
    assert entries(cache) == []
    cached(cache, data_of(folder), SERIES, Builder(), print)
    assert len(entries(cache)) == 1


def test_the_entries_unused_for_the_longest_time_make_room(folder, cache):
    paths = []
    for number in range(3):
        (folder / "a.csv").write_text(str(number))
        cached(cache, data_of(folder), SERIES, Builder(), print)
        paths.append(cache.folder / f"{market_key(data_of(folder), SERIES)}.market")
        os.utime(paths[-1], (number, number))
    (folder / "a.csv").write_text("0")
    cached(cache, data_of(folder), SERIES, Builder(), print)  # the oldest is used again
    size = paths[0].stat().st_size
    small = Cache(
        cache.folder, keeps_all=True, limit_bytes=3 * size + caching.market_bytes(planted_market(days=3)) - size
    )
    (folder / "a.csv").write_text("new")
    cached(small, data_of(folder), SERIES, Builder(), print)
    left = entries(cache)
    assert paths[0] in left
    assert paths[1] not in left
    assert cache.folder / f"{market_key(data_of(folder), SERIES)}.market" in left


def test_a_market_above_the_limit_is_not_kept_and_drives_nothing_out(folder, cache):
    cached(cache, data_of(folder), SERIES, Builder(), print)
    (folder / "a.csv").write_text("new")
    cached(dataclasses.replace(cache, limit_bytes=1000), data_of(folder), SERIES, Builder(), print)
    assert len(entries(cache)) == 1


def test_leftovers_of_killed_processes_go_after_a_day(folder, cache):
    for name, age in (("old.partial", 10), ("new.partial", None), ("mine.txt", 10)):
        (cache.folder / name).touch()
        if age:
            os.utime(cache.folder / name, (age, age))
    cached(cache, data_of(folder), SERIES, Builder(), print)
    assert {path.name for path in cache.folder.iterdir()} - {path.name for path in entries(cache)} == {
        "new.partial",
        "mine.txt",
    }


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
def test_a_full_or_read_only_disk_is_a_warning(folder, cache, monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(caching, "save_entry", fail)
    said: list[str] = []
    assert same(cached(cache, data_of(folder), SERIES, Builder(), said.append), planted_market(days=3))
    assert said == [f"warning: the prepared market is not kept in {cache.folder}: {error.strerror}."]


def test_many_writers_and_readers_see_whole_entries_only(folder, cache):
    said, results = [], []

    def work() -> None:
        results.append(cached(cache, data_of(folder), SERIES, Builder(), said.append))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(market, planted_market(days=3)) for market in results)
    assert len(results) == 8
    assert not [text for text in said if text.startswith("warning")]
    assert [path.suffix for path in cache.folder.iterdir()] == [".market"]


# Which folder


def test_off_means_none_by_flag_and_by_variable(monkeypatch):
    assert open_cache(OFF, print) is None
    monkeypatch.setenv(VARIABLE, OFF)
    assert open_cache(None, print) is None


def test_a_flag_wins_over_the_variable_and_that_over_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(caching.sys, "platform", "linux")
    assert open_cache(str(tmp_path / "flag"), print) == Cache(tmp_path / "flag", keeps_all=True)
    assert open_cache(None, print) == Cache(tmp_path / "variable", keeps_all=True)
    monkeypatch.delenv(VARIABLE)
    assert open_cache(None, print) == Cache(tmp_path / "xdg" / "tidewalk" / "markets")
    assert stat.S_IMODE((tmp_path / "xdg" / "tidewalk" / "markets").stat().st_mode) == 0o700


def test_a_relative_xdg_folder_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(caching.sys, "platform", "linux")
    assert caching.users_folder() == tmp_path / ".cache" / "tidewalk" / "markets"
    monkeypatch.setattr(caching.sys, "platform", "darwin")
    assert caching.users_folder() == tmp_path / "Library" / "Caches" / "tidewalk" / "markets"


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path):
    said: list[str] = []
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    assert open_cache(str(tmp_path / "shared"), said.append) is None
    assert "others may write to it" in said[0]


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path):
    said: list[str] = []
    (tmp_path / "file").touch()
    assert open_cache(str(tmp_path / "file" / "cache"), said.append) is None
    assert said[0].startswith("warning: no cache of prepared markets")
