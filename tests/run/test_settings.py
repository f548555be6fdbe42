import dataclasses
import tomllib
from pathlib import Path

import pytest

from support import small_config
from tidewalk.core.errors import ConfigError
from tidewalk.run.settings import changes, config_hash, from_toml, result_settings, to_toml, with_absolute_paths


def test_a_configuration_survives_toml(tmp_path):
    config = small_config(tmp_path / "m.npz", tmp_path / "run", select="sharpe")
    assert from_toml(to_toml(config)) == config


def test_an_interval_between_checkpoints_is_kept_and_none_is_left_out(tmp_path):
    config = small_config(tmp_path / "m.npz")
    assert config.output.checkpoint_every is None
    assert "checkpoint_every" not in to_toml(config)
    text = to_toml(config).replace("[output]", "[output]\ncheckpoint_every = 3")
    assert from_toml(text).output.checkpoint_every == 3
    with pytest.raises(ConfigError, match="--checkpoint-every is 0; it must be 1 or more"):
        from_toml(text.replace("checkpoint_every = 3", "checkpoint_every = 0"))


def test_missing_keys_keep_their_defaults():
    config = from_toml('[data]\ndata_dir = "x"\nsymbol = "ES"\n')
    assert config.train.epochs == 20
    assert config.dqn.hidden == (128, 128)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[data]\ndata_dir = "x"\nsymbol = "ES"\n[dqn]\nlearning_rte = 1.0\n', "unknown key 'learning_rte'"),
        ('[data]\ndata_dir = "x"\nsymbol = "ES"\n[dqn]\ngama = 1.0\n', r"did you mean gamma\?"),
        ('[data]\nsymbol = "ES"\n', "'data_dir' is missing"),
        ('[data]\ndata_dir = "x"\nsymbol = "ES"\n[train]\nepochs = "five"\n', r"epochs is 'five' \(str\).*int"),
        ('[data]\ndata_dir = "x"\nsymbol = "ES"\n[train]\nepochs = true\n', "epochs is True"),
        ('model = "dqm"\n[data]\ndata_dir = "x"\nsymbol = "ES"\n', r"did you mean dqn\?"),
        ("[data\n", "not valid TOML"),
        ('[data]\ndata_dir = "x"\nsymbol = "ES"\n[train]\nepochs = 0\n', "--epochs is 0"),
    ],
)
def test_a_wrong_file_is_refused_with_key_value_and_remedy(text, says):
    with pytest.raises(ConfigError, match=says):
        from_toml(text, "study.toml")


def test_hash_ignores_where_files_lie_and_changes_with_what_changes_a_result(tmp_path):
    config = small_config(tmp_path / "a.npz", tmp_path / "run")
    elsewhere = dataclasses.replace(config, data=dataclasses.replace(config.data, data_dir=tmp_path / "b.npz"))
    other = {"out": tmp_path / "r2", "quiet": False, "checkpoint_every": 3, "profile": True, "learner": "xla"}
    loud = dataclasses.replace(config, output=dataclasses.replace(config.output, **other))
    assert config_hash(config) == config_hash(elsewhere) == config_hash(loud)
    others = [
        dataclasses.replace(config, train=dataclasses.replace(config.train, seed=1)),
        dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, lr=1e-3)),
        dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, double=False)),
        dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, duelling=False)),
        dataclasses.replace(config, output=dataclasses.replace(config.output, precision="tf32")),
        dataclasses.replace(config, costs=dataclasses.replace(config.costs, slippage_ticks=2.0)),
    ]
    assert len({config_hash(config), *map(config_hash, others)}) == 1 + len(others)


def test_default_purge_covers_the_targets_and_a_given_one_wins(tmp_path):
    config = small_config(tmp_path / "m.npz")
    assert config.purge_bars == config.dqn.n_step + 1
    given = dataclasses.replace(config, windows=dataclasses.replace(config.windows, purge_bars=0))
    assert given.purge_bars == 0


def test_toml_holds_every_setting(tmp_path):
    values = tomllib.loads(to_toml(small_config(tmp_path / "m.npz", tmp_path / "run")))
    assert set(values) == {"data", "model", "series", "windows", "env", "costs", "limits", "train", "dqn", "output"} - (
        {"series"} - set(values)
    )


def test_paths_are_made_to_mean_the_same_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = small_config(Path("m.npz"))
    table = dataclasses.replace(config, series=dataclasses.replace(config.series, roll="table:rolls.csv"))
    absolute = with_absolute_paths(table)
    assert absolute.data.data_dir == tmp_path / "m.npz"
    assert absolute.series.roll == f"table:{tmp_path / 'rolls.csv'}"
    assert with_absolute_paths(absolute) == absolute
    assert config_hash(absolute) == config_hash(table)
    assert with_absolute_paths(config).series.roll == "volume"


def test_changes_name_the_setting_and_both_values(tmp_path):
    config = small_config(tmp_path / "m.npz")
    other = dataclasses.replace(
        config,
        dqn=dataclasses.replace(config.dqn, lr=0.001, hidden=(8,)),
        windows=dataclasses.replace(config.windows, purge_bars=7),
        output=dataclasses.replace(config.output, quiet=False, precision="bf16"),
    )
    text = changes(result_settings(config), result_settings(other))
    assert set(text.split(", ")) == {
        "windows.purge_bars not set -> 7",
        "dqn.lr 0.0005 -> 0.001",
        "dqn.hidden [16] -> [8]",
        "output.precision float32 -> bf16",
    }
    assert changes(result_settings(config), result_settings(config)) == ""


def test_values_given_beside_a_file_win_over_its_data_table():
    text = '[data]\nsymbol = "ES"\n[train]\nepochs = 3\n'
    config = from_toml(text, data={"data_dir": "x", "symbol": "NQ"})
    assert (config.data.data_dir, config.data.symbol, config.train.epochs) == (Path("x"), "NQ", 3)
    assert from_toml("", data={"data_dir": "x", "symbol": "NQ"}).train.epochs == 20


def several(tmp_path, symbol="ES.FUT,NQ.FUT"):
    config = small_config(tmp_path / "data")
    return dataclasses.replace(config, data=dataclasses.replace(config.data, symbol=symbol))


def test_several_symbols_are_a_list_in_toml_and_one_is_a_string(tmp_path):
    both = several(tmp_path)
    assert both.symbols == ("ES.FUT", "NQ.FUT")
    assert [both.data_of(symbol).symbol for symbol in both.symbols] == ["ES.FUT", "NQ.FUT"]
    assert tomllib.loads(to_toml(both))["data"]["symbol"] == ["ES.FUT", "NQ.FUT"]
    assert from_toml(to_toml(both)) == both
    one = small_config(tmp_path / "data")
    assert tomllib.loads(to_toml(one))["data"]["symbol"] == "ES.FUT"
    assert from_toml('[data]\ndata_dir = "x"\nsymbol = ["ES.FUT"]\n').symbols == ("ES.FUT",)
    assert config_hash(one) != config_hash(both) != config_hash(several(tmp_path, "NQ.FUT,ES.FUT"))


@pytest.mark.parametrize(
    ("symbol", "says"),
    [("ES.FUT,NQ.FUT,ES.FUT", "--symbol ES.FUT is given twice"), ("ES.FUT,,NQ.FUT", "between the commas is empty")],
)
def test_symbols_twice_or_empty_are_refused(tmp_path, symbol, says):
    with pytest.raises(ConfigError, match=says):
        several(tmp_path, symbol)


@pytest.mark.parametrize("value", ["[]", "[1, 2]", "3"])
def test_symbols_that_are_no_texts_are_refused(value):
    with pytest.raises(ConfigError, match=r"symbol is .*must be of type str"):
        from_toml(f'[data]\ndata_dir = "x"\nsymbol = {value}\n')
