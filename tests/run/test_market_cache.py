"""The cache of prepared markets, as the commands use it."""

import dataclasses
from pathlib import Path

import pytest

from market.test_entry import same
from tidewalk.data.load import DataConfig
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.run.markets import read_market
from tidewalk.run.settings import OutputConfig, RunConfig, config_hash, from_toml, to_toml, with_absolute_paths


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder, SampleConfig(months=1, volume=0.02))
    return folder


def config_of(folder: Path, cache: str | None, *, quiet: bool = False) -> RunConfig:
    return RunConfig(data=DataConfig(folder, "ES.FUT"), output=OutputConfig(cache=cache, quiet=quiet))


def test_a_study_finds_the_market_of_the_study_before(sample, tmp_path, capsys):
    cache = tmp_path / "cache"
    first = read_market(config_of(sample, str(cache)))
    assert capsys.readouterr().err == ""
    (entry,) = cache.iterdir()
    again = read_market(config_of(sample, str(cache)))
    assert capsys.readouterr().err == f"prepared before from the same files: {entry.name[:12]} in the cache {cache}\n"
    assert same(first, again)
    assert same(first, read_market(config_of(sample, "off")))
    read_market(config_of(sample, str(cache), quiet=True))
    assert capsys.readouterr().err == ""


def test_where_prepared_markets_are_kept_changes_no_result(sample):
    hashes = {config_hash(config_of(sample, cache)) for cache in (None, "off", "/somewhere")}
    assert len(hashes) == 1


def test_the_folder_means_the_same_from_any_folder(sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moved = with_absolute_paths(config_of(sample, "mine"))
    assert moved.output.cache == str(tmp_path / "mine")
    assert from_toml(to_toml(moved)) == moved
    for cache in (None, "off"):
        assert with_absolute_paths(config_of(sample, cache)).output.cache == cache


def test_a_prepared_file_is_not_cached(sample, tmp_path):
    from tidewalk.market.device import save_market

    market = read_market(config_of(sample, "off"))
    save_market(tmp_path / "m.npz", market)
    config = config_of(tmp_path / "m.npz", str(tmp_path / "cache"))
    assert same(read_market(dataclasses.replace(config)), market)
    assert not (tmp_path / "cache").exists()
