"""What is read for a study of one symbol or several, and what is refused before anything is read."""

import dataclasses
from pathlib import Path

import pytest

from data.market_files import ALWAYS, bars, dbn, mapped, put
from support import planted_market, small_config
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.load import DataConfig
from tidewalk.market.device import save_market
from tidewalk.market.prepare import SeriesConfig
from tidewalk.run.markets import read_market, read_markets, refuse_shared_settings
from tidewalk.run.settings import OutputConfig


def asking(symbol: str, path: Path = Path("data"), **series: object):
    config = small_config(path)
    return dataclasses.replace(config, data=DataConfig(path, symbol), series=SeriesConfig(**series))


@pytest.mark.parametrize(
    ("series", "says"),
    [
        ({"tick": 0.5}, "--tick 0.5: would hold for every symbol, and ES and NQ are different contracts"),
        ({"tick": 0.5, "multiplier": 20.0}, "--tick 0.5 and --multiplier 20: would hold"),
        ({"roll": "table:rolls.csv"}, "--roll table:rolls.csv: would hold"),
    ],
)
def test_settings_of_one_contract_are_refused_for_several_roots(series, says):
    with pytest.raises(ConfigError, match=f"{says}.*one root at a time"):
        read_markets(asking("ES.FUT,NQ.FUT", **series))
    refuse_shared_settings(asking("ESH4,ESM4", **series))
    refuse_shared_settings(asking("ES.FUT", **series))
    refuse_shared_settings(asking("ES.FUT,NQ.FUT"))


def test_a_prepared_market_is_of_one_symbol(tmp_path):
    save_market(tmp_path / "es.npz", planted_market(days=10))
    (market,) = read_markets(asking("ES.FUT", tmp_path / "es.npz"))
    assert market.info.symbol == "ES.FUT"
    with pytest.raises(ConfigError, match=r"es.npz holds the prepared market of one symbol. Point --data-dir at"):
        read_markets(asking("ES.FUT,NQ.FUT", tmp_path / "es.npz"))
    with pytest.raises(DataError, match=r"es.npz holds ES.FUT, not NQ.FUT"):
        read_markets(asking("NQ.FUT", tmp_path / "es.npz"))


def test_weeks_of_hidden_rolls_are_left_out_of_other_data_only_where_rolls_are_hidden(tmp_path, capsys):
    path = put(tmp_path, "x.dbn", dbn(bars(7, 40), [mapped("ESZ3", (*ALWAYS, 7))]))
    config = asking("ESZ3", path, break_roll_weeks=True)
    config = dataclasses.replace(config, output=OutputConfig(cache=str(tmp_path / "cache")))
    with pytest.raises(ConfigError, match="--break-roll-weeks: ESZ3 shows its contracts"):
        read_markets(config)
    (other,) = read_markets(config, is_other=True)
    assert "ESZ3 shows its contracts, so that its rolls are known. Nothing is left out." in capsys.readouterr().err
    (plain,) = read_markets(asking("ESZ3", path))
    assert (other.info.fingerprint, other.flags.tolist()) == (plain.info.fingerprint, plain.flags.tolist())
    with pytest.raises(ConfigError, match="--break-roll-weeks"):
        read_markets(config)  # what was read for another run is not kept under these settings


def test_without_a_symbol_nothing_is_read():
    with pytest.raises(ConfigError, match=r"--symbol is missing: name what to trade, such as ES\.FUT"):
        read_markets(asking(""))


def test_where_one_symbol_is_needed_several_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--symbol ES.FUT --symbol NQ.FUT: one symbol at a time"):
        read_market(asking("ES.FUT,NQ.FUT", tmp_path))
