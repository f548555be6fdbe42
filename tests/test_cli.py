"""The command line as a stranger meets it: exit codes, one paragraph of error, results alone on standard output."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import planted_market
from tidewalk import cli
from tidewalk.commands.train import parse_study
from tidewalk.core.errors import ConfigError, Interrupted, TrainError
from tidewalk.market.device import save_market
from tidewalk.run import loop, markets, settings
from tidewalk.store import layout
from tidewalk.store.names import check_folder_name

WINDOWS = ["--train-months", "2", "--val-months", "1", "--test-months", "1"]
SIZES = ["--seeds", "2", "--epochs", "2", "--max-steps-per-epoch", "5", "--batch-size", "16", "--hidden", "16"]
SIZES += ["--lanes", "8", "--replay-capacity", "512", "--prefill-steps", "4"]
# architecture.md section 7
FLAGS = [
    "--model",
    "--data-dir",
    "--symbol",
    "--epochs",
    "--max-steps-per-epoch",
    "--batch-size",
    "--train-months",
    "--val-months",
    "--test-months",
    "--step-months",
    "--out",
    "--seeds",
    "--seed",
    "--schema",
    "--tz",
    "--bar-label",
    "--roll",
    "--features",
    "--lookback",
    "--positions",
    "--tick",
    "--multiplier",
    "--commission-usd",
    "--slippage-ticks",
    "--flat-at-close",
    "--partial-test",
    "--purge-bars",
    "--lr",
    "--gamma",
    "--n-step",
    "--epsilon",
    "--hidden",
    "--lanes",
    "--device",
    "--precision",
    "--profile",
    "--config",
    "--overwrite",
    "--quiet",
    "--json",
    "--updates-per-step",
    "--select",
]


@pytest.fixture(scope="module")
def market_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("market") / "planted.npz"
    save_market(path, planted_market(days=182))
    return path


@pytest.fixture(scope="module")
def trained(market_file, tmp_path_factory):
    """A run that the command line made, and what it said on both streams."""
    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["train", *study(market_file), "--out", str(folder), "--json"])
    return code, folder, out.getvalue(), err.getvalue()


def study(market_file: Path) -> list[str]:
    return ["--data-dir", str(market_file), "--symbol", "ES.FUT", *WINDOWS, *SIZES]


def refused(capsys, *args: str | Path, code: int = 2) -> str:
    """What a command says that ends with an exit code; it is one paragraph, and standard output stays empty."""
    assert cli.main([str(arg) for arg in args]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last.startswith("tidewalk: ")
    assert "Traceback" not in captured.err
    assert len(last) < 700
    return last


# --- finding one's way


def test_without_a_command_the_commands_are_listed(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_on_standard_output(command, capsys):
    assert cli.main([command, "--help"]) == 0
    captured = capsys.readouterr()
    assert f"tidewalk {command}" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("command", ["train", "windows"])
def test_every_flag_is_there_and_explained(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    cli.main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    for flag in FLAGS:
        at = next(i for i, line in enumerate(lines) if re.match(rf"\W {flag}[ ,]", line))
        words = " ".join(lines[at : at + 2]).partition("(default")[0].split()
        assert len([word for word in words if word.isalpha() and word.islower()]) > 0, flag


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidewalk 0.")


@pytest.mark.parametrize("value", ["0", "-3", "banana", "", "²"])
def test_a_number_of_devices_that_jax_would_fail_on_is_refused_by_name(value, monkeypatch, capsys):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", value)
    assert cli.main(["windows", "--help"]) == 2
    assert f"JAX_NUM_CPU_DEVICES={value} in the environment: allowed is" in capsys.readouterr().err
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    assert cli.main(["windows", "--help"]) == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["trane"], ["unknown command 'trane'", "did you mean train?", "windows"]),
        (["train", "--symbl", "ES"], ["unknown flag --symbl", "did you mean --symbol?", "`tidewalk train --help`"]),
        (["train", "--epocs", "3"], ["unknown flag --epocs", "did you mean --epochs?"]),
        (["train", "--learning-rate", "3"], ["did you mean --lr?"]),
        (["train", "--batch", "3"], ["did you mean --batch-size?"]),
        (["train", "-x"], ["unknown flag -x"]),
        (["train", "x"], ["unexpected 'x'"]),
        (["train"], ["--data-dir and --symbol must be given"]),
        (["train", "--symbol", "ES"], ["--data-dir must be given"]),
        (["train", "--data-dir", "--symbol", "ES"], ["--data-dir needs a value: a path"]),
        (["train", "--out"], ["--out needs a value"]),
        (["train", "--data-dir", ""], ["--data-dir is ''; it must be a path"]),
        (["train", "--epochs", "five"], ["--epochs is 'five'; it must be a whole number"]),
        (["train", "--epochs", "1.5"], ["--epochs is '1.5'; it must be a whole number"]),
        (["train", "--lr", "fast"], ["--lr is 'fast'; it must be a number"]),
        (["train", "--model", "dqm"], ["--model is 'dqm'", "did you mean dqn?"]),
        (["train", "--precision", "float23"], ["one of float32, tf32, bf16", "did you mean float32?"]),
        (["train", "--hidden", "64,x"], ["--hidden is '64,x'", "several with commas between"]),
        (["train", "--hidden", "64,,64"], ["--hidden is '64,,64'"]),
        (["train", "--partial-test=yes"], ["--partial-test is a switch", "'yes'"]),
        (["resume"], ["RUN must be given"]),
        (["resume", "a", "b"], ["unexpected 'b'"]),
        (["doctor", "--all"], ["unknown flag --all"]),
        (["sample", "--out", "x", "--kind", "mraket"], ["one of market, planted, noise", "did you mean market?"]),
    ],
)
def test_a_word_that_does_not_fit_is_named_with_what_would(args, says, capsys):
    text = refused(capsys, *args)
    for part in says:
        assert part in text


# validity.md B53: each number is checked before any device work
@pytest.mark.parametrize(
    "words",
    [
        "--epochs 0",
        "--epochs -3",
        "--seeds 0",
        "--seed -1",
        "--max-steps-per-epoch 0",
        "--batch-size 0",
        "--lr 0",
        "--lr nan",
        "--lr -1e-3",
        "--gamma 1.5",
        "--gamma nan",
        "--n-step 0",
        "--lookback 0",
        "--lookback 99999",
        "--positions 0",
        "--positions 51",
        "--train-months 0",
        "--step-months 0",
        "--purge-bars -1",
        "--slippage-ticks -1",
        "--slippage-ticks nan",
        "--commission-usd inf",
        "--tick 0",
        "--tick nan",
        "--multiplier -5",
        "--lanes 0",
        "--replay-capacity 0",
        "--hidden 0",
        "--hidden 16,0",
        "--epsilon 2",
        "--checkpoint-every 0",
        "--updates-per-step 0",
        "--seed 99999999999",
        "--replay-capacity 99999999999",
        "--hidden 99999999999",
        "--episode-bars 99999999999",
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_is_read(words, tmp_path, capsys):
    flag, value = words.split()
    text = refused(capsys, "train", "--data-dir", tmp_path / "nowhere", "--symbol", "ES.FUT", flag, value)
    assert text.startswith(f"tidewalk: {flag} is ")
    assert "nowhere" not in text


def test_steps_that_the_clock_cannot_count_are_refused(tmp_path, capsys):
    sizes = ("--epochs", "100000", "--max-steps-per-epoch", "100000")
    assert "2147483647 can be counted" in refused(capsys, "train", "--data-dir", tmp_path, "--symbol", "ES", *sizes)


# --- flags and configuration files


def test_lists_switches_and_equal_signs(tmp_path):
    args = ["--data-dir=x", "--symbol=ES", "--hidden=64,64", "--flat-at-close", "--max_steps_per_epoch", "7"]
    config = parse_study("train", [*args, "--tick", "none", "--no-partial-test"])
    assert config.dqn.hidden == (64, 64)
    assert config.env.flat_at_close
    assert config.train.max_steps_per_epoch == 7
    assert config.series.tick is None
    assert not config.windows.partial_test
    assert parse_study("train", [*args, "--hidden", "32"]).dqn.hidden == (32,)


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('[data]\nsymbol = "ES"\n[train]\nepochs = 3\nseeds = 7\n[windows]\npartial_test = true\n')
    config = parse_study("train", ["--config", str(file), "--data-dir", "x", "--epochs", "9", "--no-partial-test"])
    assert (config.data.symbol, config.data.data_dir) == ("ES", Path("x"))
    assert (config.train.epochs, config.train.seeds, config.train.lanes) == (9, 7, 64)
    assert not config.windows.partial_test
    with pytest.raises(ConfigError, match=r"'data_dir' is missing; give it there or as --data-dir"):
        parse_study("train", [f"--config={file}"])


def test_the_file_of_a_run_repeats_it_in_another_folder(trained):
    config = parse_study("train", ["--config", str(trained[1] / "run.toml")])
    assert config.output.out is None
    assert not config.output.overwrite
    assert config.data.data_dir.is_absolute()
    assert config.train.epochs == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nepocs = 3\n", ["train: unknown key 'epocs' (did you mean epochs?)"]),
        ("seeds = 3\n", ["unknown key 'seeds' (it belongs in [train])"]),
        ("[trian]\n", ["unknown key 'trian' (did you mean train?)"]),
        ("[train\n", ["not valid TOML"]),
        ('[train]\nepochs = "3"\n', ["epochs is '3' (str); it must be of type int"]),
        ("train = 3\n", ["train is 3 (int); it must be a table"]),
        ("[dqn]\nlr = nan\n", ["--lr is nan"]),
    ],
)
def test_a_wrong_configuration_file_is_refused_with_its_key(text, says, tmp_path, capsys):
    file = tmp_path / "study.toml"
    file.write_text(text)
    said = refused(capsys, "train", "--config", file, "--data-dir", "x", "--symbol", "ES")
    for part in says:
        assert part in said


def test_a_configuration_that_is_no_text_file_is_refused(market_file, tmp_path, capsys):
    assert "No such file" in refused(capsys, "train", "--config", tmp_path / "nope.toml")
    assert "Is a directory" in refused(capsys, "train", "--config", tmp_path)
    assert "not a text file" in refused(capsys, "train", "--config", market_file)
    assert "--config needs a value" in refused(capsys, "train", "--config")


# --- data


@pytest.mark.parametrize("command", ["train", "windows", "inspect"])
def test_data_that_are_not_there_or_not_data(command, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("hello\n")
    (tmp_path / "x.npz").mkdir()
    for name, says in {
        "nowhere": "no such file or directory",
        "nowhere.npz": "no such file",
        "empty": "holds no files",
        "notes": "columns found: hello",
        "notes/a.txt": "columns found: hello",
        "x.npz": "Is a directory",
    }.items():
        assert says in refused(capsys, command, "--data-dir", tmp_path / name, "--symbol", "ES.FUT")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "other"])
def test_a_damaged_market_is_refused(damage, market_file, tmp_path, capsys):
    data = market_file.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    contents = {
        "cut": data[:-100],
        "flipped": bytes(flipped),
        "empty": b"",
        "text": b"\x80\x04K\x01.",
        "other": b"PK\x03\x04",
    }
    path = tmp_path / "m.npz"
    path.write_bytes(contents[damage])
    text = refused(capsys, "train", "--data-dir", path, "--symbol", "ES.FUT")
    assert "m.npz is not a readable prepared market" in text
    assert "allow_pickle" not in text


@pytest.mark.parametrize("symbol", ["NQ.FUT", "ESZ4", "es.fut", "ES FUT"])
def test_another_symbol_than_the_market_is_refused(symbol, market_file, capsys):
    text = refused(capsys, "windows", "--data-dir", market_file, "--symbol", symbol, *WINDOWS)
    assert f"holds ES.FUT, not {symbol}" in text


@pytest.mark.parametrize(
    "flag", ["--roll calendar:8", "--tick 1", "--multiplier 5", "--features a:b", "--schema ohlcv-1m"]
)
def test_a_setting_that_a_prepared_market_cannot_follow_is_refused(flag, market_file, capsys):
    text = refused(capsys, "train", *study(market_file), *flag.split())
    assert flag.split()[0] in text
    assert "planted.npz is prepared already" in text


@pytest.mark.parametrize("flag", ["--lookback", "--purge-bars"])
def test_too_little_history_is_refused_with_the_arithmetic(flag, market_file, tmp_path, capsys):
    save_market(tmp_path / "short.npz", planted_market(days=60))
    text = refused(capsys, "train", "--data-dir", tmp_path / "short.npz", "--symbol", "ES.FUT", *WINDOWS)
    assert "train 2 + val 1 + test 1 = 4" in text
    text = refused(capsys, "windows", *study(market_file), flag, "4000")
    assert "No window is left" in text
    assert "3 windows (the first tests 2024-" in text
    assert flag in text


# --- the run folder


@pytest.mark.parametrize("name", ["..", ".", "", "a ", " a", "-a", ".hidden", "x" * 65, "a;b", "a:b"])
def test_a_name_that_is_no_safe_folder_is_refused_before_the_data_are_read(name, tmp_path, capsys):
    out = f"{tmp_path}/{name}" if name not in ("", ".") else name
    text = refused(capsys, "train", "--data-dir", tmp_path / "nowhere", "--symbol", "ES", f"--out={out}")
    assert "cannot be used" in text or "--out is ''" in text


def test_a_file_or_another_folder_in_the_way_is_left_alone(market_file, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert "File exists" in refused(capsys, "train", *study(market_file), "--out", tmp_path / "file")
    assert "Not a directory" in refused(capsys, "train", *study(market_file), "--out", tmp_path / "file" / "run")
    for extra in ([], ["--overwrite"]):
        text = refused(capsys, "train", *study(market_file), "--out", tmp_path / "full", *extra)
        assert "not a tidewalk run" in text
    assert (tmp_path / "full" / "file").read_text() == "mine"
    assert "cannot create" in refused(capsys, "train", *study(market_file), "--out", "/proc/run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_beside_which_no_ledger_can_be_kept_is_refused(market_file, tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o555)
    assert "not writable" in refused(capsys, "train", *study(market_file), "--out", tmp_path / "locked" / "run")


def test_a_file_in_the_place_of_the_sessions_of_trials_is_told_before_training(market_file, tmp_path, capsys):
    (tmp_path / ".trials").write_text("in the way")
    assert ".trials: not writable" in refused(capsys, "train", *study(market_file), "--out", tmp_path / "run")


def test_a_run_is_not_replaced_unasked_and_not_shared(trained, market_file, capsys, tmp_path):
    assert "--overwrite" in refused(capsys, "train", *study(market_file), "--out", trained[1])
    folder = copy_of(trained[1], tmp_path, "interrupted")
    run = layout.run_paths(folder)
    layout.lock_run(run)
    try:
        for args in (["resume", folder], ["train", *study(market_file), "--out", folder, "--overwrite"]):
            assert f"in use by process {os.getpid()}" in refused(capsys, *args)
    finally:
        layout.unlock_run(run)


def test_default_run_folders_do_not_collide_and_have_safe_names(market_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse_study("train", study(market_file))
    odd = dataclasses.replace(config, data=dataclasses.replace(config.data, symbol="ES</script>é" * 9))
    first = loop._run_path(odd)
    check_folder_name(first.name, "--out")
    first.mkdir(parents=True)
    assert loop._run_path(odd) != first


# --- results


def test_json_is_alone_on_standard_output_and_the_log_on_standard_error(trained):
    code, folder, out, err = trained
    assert code == 0
    assert json.loads(out) == json.loads((folder / "summary.json").read_text())
    lines = err.splitlines()
    assert lines[0].startswith("reading ")
    assert lines[1].startswith("compiling for 3 windows x 2 seeds")
    assert sum(line.startswith("epoch ") for line in lines) == 2
    assert lines[-1].startswith("trading the test months")


def test_report_and_resume_of_a_finished_run(trained, capsys):
    assert "nothing to resume" in refused(capsys, "resume", trained[1])
    (trained[1] / "report.html").unlink()
    assert cli.main(["report", str(trained[1])]) == 0
    assert capsys.readouterr().out == f"{trained[1] / 'report.html'}\n"


def test_a_report_of_changed_files_warns(trained, tmp_path, capsys):
    folder = copy_of(trained[1], tmp_path, "complete")
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(summary.replace('"sessions": ', '"sessions": 1'))
    assert cli.main(["report", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder / 'report.html'}\n"
    assert captured.err.startswith(f"warning: {folder / 'summary.json'}: not what the run wrote")


def test_a_folder_that_is_no_run(trained, tmp_path, capsys):
    typo = trained[1].with_name("whoel")
    for command in ("report", "resume"):
        assert "did you mean whole?" in refused(capsys, command, typo)
        assert "not a run folder" in refused(capsys, command, tmp_path)


def test_the_headline_shows_what_is_undefined_and_what_to_beware_of(trained, capsys, tmp_path):
    from tidewalk.commands.train import print_result

    folder = copy_of(trained[1], tmp_path, "complete")
    summary = json.loads((folder / "summary.json").read_text())
    summary["oos"] |= {"sharpe_session": None, "sharpe_ci90": None, "psr": None, "dsr": None}
    undefined = [f"oos.{name} is undefined: no variance" for name in ("sharpe_session", "sharpe_ci90", "psr", "dsr")]
    summary["warnings"] += [*undefined, "The policy equals the flat baseline on 100 % of bars."]
    (folder / "summary.json").write_text(json.dumps(summary))
    print_result(folder, as_json=False)
    out = capsys.readouterr().out
    assert "Sharpe per year undefined, max drawdown" in out
    assert "WARNING: The policy equals the flat baseline on 100 % of bars." in out
    assert "nan" not in out.lower()


# --- failures and exit codes


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (TrainError("Every member's loss is not finite."), 3, "not finite"),
        (MemoryError(), 3, "out of memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore"), 3, "--replay-capacity"),
        (RuntimeError("INTERNAL: Out of memory allocating 9 bytes."), 3, "out of memory"),
        (Interrupted("Stopped after epoch 1 of 2."), 75, "Stopped after epoch 1"),
        (KeyboardInterrupt(), 130, "nothing to resume"),
        (PermissionError(13, "Permission denied", "x/y"), 2, "x/y: Permission denied"),
        (ModuleNotFoundError("No module named 'plotly'", name="plotly"), 2, "the package plotly is not installed"),
        (ZeroDivisionError("division by zero\nsecond line"), 1, "ZeroDivisionError at test_cli.py"),
    ],
)
def test_what_stops_a_study_decides_the_exit_code(error, code, says, market_file, monkeypatch, capsys):
    def fail(_: settings.RunConfig) -> Path:
        raise error

    monkeypatch.setattr(loop, "train", fail)
    text = refused(capsys, "train", *study(market_file), code=code)
    assert says in text
    assert "second line" not in text
    assert cli.main(["train", *study(market_file), "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_a_stop_while_programs_are_compiled_can_be_resumed(error, market_file, tmp_path, monkeypatch, capsys):
    def stop(_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(loop, "start", stop)
    folder = tmp_path / "run"
    text = refused(capsys, "train", *study(market_file), "--out", folder, code=75)
    assert f"tidewalk resume {folder}" in text
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    assert not (folder / ".tidewalk.lock").exists()
    monkeypatch.setattr(markets, "read_markets", stop)
    if error is KeyboardInterrupt:
        assert "tidewalk resume" in refused(capsys, "resume", folder, code=75)


def test_a_failed_run_says_so_in_its_folder(market_file, tmp_path, monkeypatch, capsys):
    def fail(_: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: 9 bytes")

    monkeypatch.setattr(loop, "start", fail)
    refused(capsys, "train", *study(market_file), "--out", tmp_path / "run", code=3)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "failed"


# --- resume


def copy_of(folder: Path, tmp_path: Path, status: str) -> Path:
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"status": status}))
    return copy


@pytest.fixture
def interrupted(trained, tmp_path):
    return copy_of(trained[1], tmp_path, "interrupted")


@pytest.fixture
def jobs(monkeypatch):
    """Jobs that were about to run, instead of running them."""
    seen = []
    monkeypatch.setattr(loop, "_supervised", lambda job, manifest: seen.append((job, manifest)) or job.run.root)
    return seen


def test_resume_goes_on_from_the_newest_whole_checkpoint(interrupted, jobs):
    loop.resume(interrupted, quiet=True)
    newest = interrupted / "checkpoints" / "epoch-00002.safetensors"
    assert jobs[-1][0].last == newest
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    loop.resume(interrupted, quiet=True)
    assert jobs[-1][0].last.name == "epoch-00001.safetensors"
    assert "SHA-256" in jobs[-1][0].notes[0]
    assert jobs[-1][1]["resumed"] == ["resumed from epoch-00001"]
    shutil.rmtree(interrupted / "checkpoints")
    loop.resume(interrupted, quiet=True)
    assert jobs[-1][0].last is None
    assert "from the start" in jobs[-1][0].notes[-1]


def test_resume_on_other_software_or_with_another_learner_warns(interrupted, jobs):
    manifest = (interrupted / "manifest.json").read_text()
    for now, before in ((f'"jax": "{jax_version()}"', '"jax": "0.1"'), ('"learner": "xla"', '"learner": "kernel"')):
        assert manifest.count(now) == 1
        manifest = manifest.replace(now, before)
    (interrupted / "manifest.json").write_text(manifest)
    loop.resume(interrupted, quiet=True)
    told = f"warning: resumed from epoch-00002, with jax {jax_version()} (was 0.1), learner xla (was kernel): "
    assert jobs[-1][0].notes[-1].startswith(told)


def jax_version() -> str:
    import jax

    return jax.__version__


# validity.md 3.4: refuse with a diff
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("lr = 0.0005", "lr = 0.001", "dqn.lr 0.0005 -> 0.001"),
        ("epochs = 2", "epochs = 9", "train.epochs 2 -> 9"),
        ("epochs = 2", "epocs = 2", "did you mean epochs?"),
        ("epochs = 2", "epochs = ", "not valid TOML"),
    ],
)
def test_resume_with_an_edited_configuration_is_refused_with_the_change(old, new, says, interrupted, capsys):
    before = (interrupted / "manifest.json").read_bytes()
    text = (interrupted / "run.toml").read_text()
    assert old in text
    (interrupted / "run.toml").write_text(text.replace(old, new))
    assert says in refused(capsys, "resume", interrupted)
    assert (interrupted / "manifest.json").read_bytes() == before


def test_resume_with_moved_data_needs_their_new_place(interrupted, market_file, jobs, tmp_path, capsys):
    text = (interrupted / "run.toml").read_text()
    (interrupted / "run.toml").write_text(text.replace("planted.npz", "gone.npz"))
    assert "gone.npz: no such file" in refused(capsys, "resume", interrupted)
    moved = shutil.copy(market_file, tmp_path / "moved.npz")
    loop.resume(interrupted, data_dir=Path(moved), quiet=True)
    assert jobs[-1][0].study.config.data.data_dir == Path(moved)


@pytest.mark.parametrize("what", ["features", "move_ticks", "fingerprint"])
def test_resume_with_other_data_is_refused(what, interrupted, tmp_path, capsys):
    market = planted_market(days=182)
    if what == "fingerprint":
        market = dataclasses.replace(market, info=dataclasses.replace(market.info, fingerprint="other"))
    elif what == "move_ticks":  # a price and the two moves that it ends and begins, as another roll table would
        opens, moves, tick = market.open_e9.copy(), market.move_ticks.copy(), market.info.tick_e9
        opens[100] += tick
        moves[98] += 1
        moves[99] -= 1
        exits = np.where(market.exit_open_e9 == market.open_e9, opens, market.exit_open_e9)
        market = dataclasses.replace(market, open_e9=opens, exit_open_e9=exits, move_ticks=moves)
    else:
        features = market.features.copy()
        features[100] += 1
        market = dataclasses.replace(market, features=features)
    save_market(tmp_path / "changed.npz", market)
    text = refused(capsys, "resume", interrupted, "--data-dir", tmp_path / "changed.npz")
    assert "not the data of the run" in text
    assert ("other bars" if what == "fingerprint" else "the feature code") in text


# --- processes


def tidewalk(*args: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without the settings of the test bench."""
    command = [sys.executable, "-m", "tidewalk.cli", *map(str, args)]
    return subprocess.run(command, env=environment(), text=True, timeout=120, check=False, **kwargs)


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "XLA", "COLUMNS", "LC_"))}
    return kept | {"JAX_PLATFORMS": "cpu"} | changes


def test_a_reader_that_leaves_is_no_failure():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = tidewalk("--help", stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_below_standard_output_is_reported():
    with Path("/dev/full").open("w") as full:
        done = tidewalk("--help", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "tidewalk: No space left on device.\n"


@pytest.mark.slow
def test_a_missing_gpu_is_said_in_one_paragraph(market_file, tmp_path):
    command = [sys.executable, "-m", "tidewalk.cli", "train", *study(market_file), "--device", "gpu"]
    command += ["--out", str(tmp_path / "run")]
    hidden = environment(CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(command, env=hidden, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tidewalk: --device gpu: jax finds no such device here")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


# validity.md 3.4, clock and locale
@pytest.mark.slow
def test_time_zone_locale_and_hash_seed_change_no_byte(market_file, tmp_path):
    folders = []
    for name, changes in {
        "a": {"TZ": "UTC", "PYTHONHASHSEED": "0"},
        "b": {"TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "PYTHONHASHSEED": "7"},
    }.items():
        command = [sys.executable, "-m", "tidewalk.cli", "train", *study(market_file), "--quiet"]
        command += ["--out", str(tmp_path / name / "run")]
        subprocess.run(command, env=environment(**changes), capture_output=True, timeout=120, check=True)
        folders.append(tmp_path / name / "run")
    assert contents(folders[0]) == contents(folders[1])


def contents(folder: Path) -> dict[str, object]:
    """What a run found, without times, names and places."""
    tables = ("equity.parquet", "fills.parquet", "fills.csv", "trades.parquet", "trades.csv", "members.parquet")
    files = [folder / name for name in (*tables, "windows.json")]
    found: dict[str, object] = {path.name: path.read_bytes() for path in (*files, *(folder / "policies").iterdir())}
    summary = json.loads((folder / "summary.json").read_text())
    oos = {name: value for name, value in summary["oos"].items() if name not in ("trials", "dsr")}
    return found | {"oos": oos, "per_window": summary["per_window"], "baselines": summary["baselines"]}


@pytest.fixture(scope="module")
def longer(market_file):
    """Flags of a study of twelve epochs."""
    return [*study(market_file), "--epochs", "12", "--max-steps-per-epoch", "50"]


@pytest.fixture(scope="module")
def uninterrupted(longer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert tidewalk("train", *longer, "--out", folder, capture_output=True).returncode == 0
    return contents(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heard", "signals", "code", "status"),
    [
        ("epoch 3/", [signal.SIGINT], 75, "interrupted"),
        ("epoch 3/", [signal.SIGINT, signal.SIGINT], 75, "interrupted"),
        ("epoch 2/", [signal.SIGTERM], 75, "interrupted"),
        ("epoch 5/", [signal.SIGKILL], -signal.SIGKILL, "running"),
        ("compiling", [signal.SIGINT], 75, "interrupted"),
        ("trading", [signal.SIGTERM], 75, "interrupted"),
        ("trading", [signal.SIGKILL], -signal.SIGKILL, "running"),
    ],
)
def test_a_run_stopped_by_a_signal_resumes_to_the_same_bytes(
    heard, signals, code, status, longer, uninterrupted, tmp_path
):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tidewalk.cli", "train", *longer, "--out", str(folder)]
    with subprocess.Popen(
        command, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        next(line for line in process.stderr if heard in line)
        for number in signals:
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    if code == 75:
        assert err.splitlines()[-1].endswith(f"Go on with: tidewalk resume {folder}")
    assert json.loads((folder / "manifest.json").read_text())["status"] == status
    assert tidewalk("resume", folder, "--quiet", capture_output=True).returncode == 0
    assert contents(folder) == uninterrupted
