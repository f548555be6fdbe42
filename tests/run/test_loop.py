import contextlib
import dataclasses
import gzip
import json
import os
import re
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest

from support import planted_market, small_config
from tidewalk.core.errors import ConfigError, DataError, Interrupted, StoreError, TrainError
from tidewalk.market.device import save_market
from tidewalk.run import ahead, loop
from tidewalk.run.console import Reporter
from tidewalk.run.engine import Engine
from tidewalk.run.profile import Tracer, steady
from tidewalk.store import checkpoint, layout, results
from tidewalk.store.layout import read_object
from tidewalk.store.summary import read_summary
from tidewalk.store.trials import tried

TIMES = ("phases_ms", "compile_ms", "trace_ms")


@pytest.fixture(scope="module")
def market_file(tmp_path_factory):
    """Six months of a planted market, 24 bars a day."""
    path = tmp_path_factory.mktemp("market") / "planted.npz"
    save_market(path, planted_market(days=182))
    return path


@pytest.fixture(scope="module")
def finished(market_file, tmp_path_factory):
    """One finished study that several tests look at."""
    return loop.train(small_config(market_file, tmp_path_factory.mktemp("runs") / "whole"))


def without_times(folder: Path) -> dict:
    summary = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key not in (*TIMES, "run")}


def policies(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "policies").iterdir())}


def test_a_study_leaves_the_whole_run_folder(finished):
    names = {path.name for path in finished.iterdir()}
    assert names >= {
        *("run.toml", "manifest.json", "windows.json", "metrics.jsonl", "trials.jsonl", "checkpoints", "policies"),
        *("equity.parquet", "trades.parquet", "members.parquet", "summary.json", "report.html", "data_quality.json"),
    }
    run = layout.open_run(finished)
    assert results.verify_results(run) == []
    assert {path.stem for path in run.checkpoints.iterdir()} == {"best", "epoch-00001", "epoch-00002"}
    assert len(list(run.policies.iterdir())) == 3 * 2
    manifest = layout.read_manifest(run)
    assert manifest["learner"] == "xla"
    assert manifest["building"]["programs"] == 2
    assert manifest["building"]["trace_ms"] > 0


def test_summary_counts_and_transfers(finished):
    summary = read_summary(layout.open_run(finished))
    assert (summary["windows"], summary["seeds"], summary["members"], summary["epochs"]) == (3, 2, 6, 2)
    assert summary["status"] == "complete"
    assert summary["transfers"]["uploads"] == 1
    assert summary["transfers"]["bytes_h2d_per_epoch"] == 0
    assert summary["transfers"]["bytes_market"] > 182 * 24 * 4
    assert summary["transfers"]["host_syncs_per_epoch"] == 1
    first, second = results.read_metrics(layout.open_run(finished)).records
    assert first["uploaded_bytes"] >= summary["transfers"]["bytes_market"]
    assert (second["uploaded_bytes"], second["host_syncs"]) == (0, 2)  # and one for the checkpoint of the last epoch
    alone = second["downloaded_bytes"] - second["checkpoint_bytes"]
    assert 0 < alone == summary["transfers"]["bytes_d2h_per_epoch"] <= 4 * 10 * 6
    assert second["checkpoint_bytes"] > 512 * 6 * 8
    assert summary["oos"]["trials"] == 1


def test_figures_agree_with_one_another(finished):
    run = layout.open_run(finished)
    summary, equity = read_summary(run), results.read_equity(run)
    ensemble = equity.filter(pl.col("policy") == "ensemble")
    assert ensemble["net_usd"].sum() == pytest.approx(summary["oos"]["net_usd"])
    assert ensemble["trades"].sum() == summary["oos"]["trades"]
    assert len(ensemble) == summary["oos"]["sessions"]
    assert sum(row["net_usd"] for row in summary["per_window"]) == pytest.approx(summary["oos"]["net_usd"])
    fills, trades = results.read_fills(run), results.read_trades(run)
    assert fills["lots"].abs().sum() == summary["oos"]["trades"]
    cash = -(fills["lots"] * fills["price"]).sum() * 50
    assert cash == pytest.approx(summary["oos"]["gross_usd"])
    assert trades["net_usd"].sum() == pytest.approx(summary["oos"]["net_usd"])
    for name, table in (("fills", fills), ("trades", trades)):
        lines = (run.root / f"{name}.csv").read_text().splitlines()
        assert len(lines) == table.height + 1
    members = results.read_members(run)
    seeds = [sum(row["seeds_net_usd"][seed] for row in summary["per_window"]) for seed in range(2)]
    assert members.group_by("seed").agg(pl.col("test_net_usd").sum()).sort("seed")[
        "test_net_usd"
    ].to_list() == pytest.approx(seeds)
    for policy in equity["policy"].unique():
        assert equity.filter(pl.col("policy") == policy)["net_usd"].sum() <= summary["oracle"]["net_usd"] + 1e-6


def test_a_profile_keeps_a_trace_and_times_and_changes_no_result(market_file, finished, tmp_path, capsys):
    config = small_config(market_file, tmp_path / "whole")
    profiled = dataclasses.replace(config, output=dataclasses.replace(config.output, profile=True, quiet=False))
    folder = loop.train(profiled)
    said = capsys.readouterr().err
    assert "trace of epoch 2: " in said
    assert "· collect " in said
    assert "(one call each)" in said
    assert re.search(r"traced, per epoch: .*\blearn \d+\.\d\d ms \(\d+%\)", said)
    summary = read_summary(layout.open_run(folder))
    phases = summary["phases_ms"]
    assert all(phases[name] > 0 for name in ("init", "collect", "learn", "evaluate", "total"))
    assert phases["phased_total"] > max(phases[name] for name in ("collect", "learn", "evaluate"))
    assert (summary["transfers"]["bytes_h2d_per_epoch"], summary["transfers"]["host_syncs_per_epoch"]) == (0, 1)
    assert policies(folder) == policies(finished)
    assert without_times(folder) == {**without_times(finished), "warnings": summary["warnings"]}
    (trace,) = (folder / "profile").rglob("*.xplane.pb")
    kept = trace.read_bytes()
    for scope in (b"/collect/", b"/store/", b"/learn/", b"/evaluate/"):
        assert scope in kept, scope
    with gzip.open(trace.with_name(trace.name.replace(".xplane.pb", ".trace.json.gz"))) as file:
        events = json.load(file)["traceEvents"]
    traced = {event["args"]["phase"] for event in events if "phase" in event.get("args", {})}
    assert traced == {"collect", "store", "learn", "evaluate", "other"}
    assert set(read_object(folder / "profile" / "phases.json")["traced_ms"]) == traced
    assert [line.get("is_traced") for line in results.read_metrics(layout.open_run(folder)).records] == [None, True]
    loop.train(dataclasses.replace(config, output=dataclasses.replace(config.output, overwrite=True)))
    assert not (folder / "profile").exists(), "a trace of the run before"


def test_the_same_command_twice_gives_the_same_bytes_and_its_log_tells_phases_and_uploads(
    market_file, finished, tmp_path, capsys, monkeypatch
):
    waits, waits_by_epoch, told = [], [0], []
    for name in ("block_until_ready", "device_get"):
        monkeypatch.setattr(jax, name, _noting(waits, getattr(jax, name)))
    append_metrics, reporter = results.append_metrics, loop.reporter

    def append(*args):
        waits_by_epoch.append(len(waits))
        append_metrics(*args)

    @contextlib.contextmanager
    def listening(epochs, *, quiet):
        with reporter(epochs, quiet=quiet) as out:
            yield Reporter(_noting(told, out.say), _noting(told, out.advance))

    monkeypatch.setattr(results, "append_metrics", append)
    monkeypatch.setattr(loop, "reporter", listening)
    config = small_config(market_file, tmp_path / "whole")
    again = loop.train(dataclasses.replace(config, output=dataclasses.replace(config.output, quiet=False)))
    first, second = results.read_metrics(layout.open_run(again)).records
    assert np.diff(waits_by_epoch).tolist() == [first["host_syncs"], second["host_syncs"]], "none that is not counted"
    texts = [str(args[0]) for args in told]
    for epoch in ("1", "2"):
        line = next(place for place, text in enumerate(texts) if text.startswith(f"epoch {epoch}/2"))
        assert texts[line - 1] == epoch, "the bar is drawn below the line, with what was known before it"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("phase breakdown:")]
    assert len(lines) == 2
    assert "uploaded 0 B · downloaded " in lines[1]
    assert lines[1].endswith("host syncs 2")
    assert "uploaded 0 B" not in lines[0]
    assert "fused collect+learn+evaluate" in lines[1]
    assert policies(again) == policies(finished)
    assert without_times(again) == without_times(finished)
    for name in ("equity.parquet", "trades.parquet", "members.parquet", "windows.json"):
        assert (again / name).read_bytes() == (finished / name).read_bytes(), name


def _noting(calls, function):
    def run(*args, **options):
        calls.append(args)
        return function(*args, **options)

    return run


# On one CPU device the host arrays of a checkpoint are the state itself; held on to, they force the next epoch to copy.
def test_a_checkpoint_holds_no_memory_that_the_next_epoch_writes_to(market_file, tmp_path, monkeypatch):
    in_place: list[bool] = []
    begin = Engine.begin

    def watching(engine, state):
        before = state.replay.unsafe_buffer_pointer()
        result = begin(engine, state)
        in_place.append(result[0].replay.unsafe_buffer_pointer() == before)
        if len(in_place) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    monkeypatch.setattr(Engine, "begin", watching)
    config = small_config(market_file, tmp_path / "one", seeds=1, epochs=3)
    one_member = dataclasses.replace(config, windows=dataclasses.replace(config.windows, step_months=9))
    with pytest.raises(Interrupted):
        loop.train(one_member)
    assert in_place == [True, True]


# style.md 8: stop, restore, continue = never stopped, bit for bit
def test_a_resumed_study_equals_one_that_never_stopped(market_file, finished, tmp_path, monkeypatch):
    folder = tmp_path / "stopped"
    monkeypatch.setattr(Engine, "finish", _signalling(Engine.finish))
    with pytest.raises(Interrupted, match="tidewalk resume"):
        loop.train(small_config(market_file, folder))
    monkeypatch.undo()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert any("oos is undefined" in text for text in summary["warnings"])
    loop.resume(folder, quiet=True)
    assert policies(folder) == policies(finished)
    assert without_times(folder) == without_times(finished)
    lines = results.read_metrics(layout.open_run(folder)).records
    assert [line["epoch"] for line in lines] == [1, 2]
    market_bytes = read_summary(layout.open_run(folder))["transfers"]["bytes_market"]
    assert lines[1]["uploaded_bytes"] == lines[1]["resuming_bytes"] > market_bytes + lines[0]["checkpoint_bytes"] / 2
    assert lines[1]["host_syncs"] == lines[1]["resuming_syncs"] + 2 > 4
    assert lines[1]["compile_ms"] > 0
    with pytest.raises(StoreError, match="complete"):
        loop.resume(folder)


def test_a_run_killed_before_it_stored_anything_is_started_again_and_not_resumed(market_file, tmp_path):
    layout.unlock_run(layout.create_run(tmp_path / "killed", overwrite=False))
    with pytest.raises(StoreError, match=r"stopped before anything of it was stored; start it again with `tidewalk"):
        loop.resume(tmp_path / "killed")
    loop._refuse_taken(tmp_path / "killed", overwrite=False)
    (tmp_path / "killed" / "run.toml").touch()
    with pytest.raises(StoreError, match="holds a run already"):
        loop._refuse_taken(tmp_path / "killed", overwrite=False)


def test_going_on_with_other_threads_of_a_cpu_is_told():
    before = {"versions": {"jax": "1"}, "device": "cpu", "threads": 2}
    assert loop._continuation(before, before, None).startswith("resumed from the start")
    said = loop._continuation(before, {**before, "threads": 1}, Path("epoch-00003.safetensors"))
    assert said.startswith("warning: resumed from epoch-00003, with threads 1 (was 2): the result may not be")
    assert not loop._continuation({"device": "cpu"}, before, None).startswith("warning"), "of an older version"


def _signalling(finish):
    def run(*args):
        ended = finish(*args)
        os.kill(os.getpid(), signal.SIGTERM)
        return ended

    return run


def test_resume_refuses_another_configuration_or_other_data(market_file, tmp_path, monkeypatch):
    folder = tmp_path / "stopped"
    monkeypatch.setattr(Engine, "finish", _signalling(Engine.finish))
    with pytest.raises(Interrupted):
        loop.train(small_config(market_file, folder))
    monkeypatch.undo()
    text = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(text.replace("slippage_ticks = 1.0", "slippage_ticks = 2.0"))
    with pytest.raises(StoreError, match=r"costs.slippage_ticks 1.0 -> 2.0"):
        loop.resume(folder)


def test_two_runs_in_one_folder_and_a_finished_one_are_refused(market_file, finished):
    before = policies(finished)
    with pytest.raises(StoreError, match="--overwrite"):
        loop.train(small_config(market_file, finished))
    assert policies(finished) == before


def test_another_root_seed_gives_other_policies_and_is_a_trial_that_counts_once(market_file, finished, tmp_path):
    shutil.copytree(finished.parent, tmp_path, dirs_exist_ok=True)
    others = [loop.train(small_config(market_file, tmp_path / name, seed=1)) for name in ("one", "two")]
    assert policies(others[0]) == policies(others[1]) != policies(finished)
    summaries = [read_summary(layout.open_run(path)) for path in (tmp_path / finished.name, *others)]
    assert [summary["oos"]["trials"] for summary in summaries] == [1, 2, 2]
    # Both configurations are compared session by session, and the copies in the runs know of both without the ledger.
    assert [summary["overfitting"]["configurations"] for summary in summaries] == [1, 2, 2]
    assert summaries[2]["overfitting"]["sessions"] == summaries[2]["oos"]["sessions"]
    (tmp_path / "trials.jsonl").unlink()
    days = np.empty(0, "datetime64[D]")
    assert len(tried(tmp_path, summaries[0]["data_fingerprint"], summaries[0]["symbol"], days).trials) == 2


# validity.md 1.1, test-poison and P9: the test months change nothing before them
def test_changing_only_the_last_test_month_leaves_every_policy_alone(market_file, finished, tmp_path):
    market = planted_market(days=182)
    windows = json.loads((finished / "windows.json").read_text())["windows"]
    first = windows[-1]["test"]["bars"][0]
    rng = np.random.default_rng(0)
    features, opens = market.features.copy(), market.open_e9.copy()
    features[first:] = rng.standard_normal(features[first:].shape)
    opens[first:] += rng.integers(-1000, 1000, len(opens[first:])) * market.info.tick_e9
    moves = np.append(np.diff(opens[1:] // market.info.tick_e9), [0, 0]).astype(np.int32)
    prices = {"open_e9": opens, "exit_open_e9": opens, "move_ticks": moves}
    save_market(tmp_path / "poisoned.npz", dataclasses.replace(market, features=features, **prices))
    poisoned = loop.train(small_config(tmp_path / "poisoned.npz", tmp_path / "whole"))
    assert policies(poisoned) == policies(finished)
    assert without_times(poisoned)["oos"] != without_times(finished)["oos"]


def test_too_little_history_leaves_no_folder(tmp_path):
    save_market(tmp_path / "short.npz", planted_market(days=60))
    with pytest.raises(DataError, match=r"train 2 \+ val 1 \+ test 1 = 4"):
        loop.train(small_config(tmp_path / "short.npz", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_another_symbol_than_the_market_holds_is_refused(market_file, tmp_path):
    config = small_config(market_file, tmp_path / "run")
    with pytest.raises(DataError, match=r"holds ES\.FUT, not NQ\.FUT"):
        loop.train(dataclasses.replace(config, data=dataclasses.replace(config.data, symbol="NQ.FUT")))


def test_settings_that_do_not_fit_the_data_are_refused_before_training(market_file, tmp_path):
    config = small_config(market_file, tmp_path / "run")
    with pytest.raises(ConfigError, match="--prefill-steps is 4; n-step targets of 9"):
        loop.train(dataclasses.replace(config, dqn=dataclasses.replace(config.dqn, n_step=9)))


@pytest.mark.parametrize(
    ("hidden", "reason"), [((16,), "it holds two hidden layers, not 1"), ((16, 16), "it needs an NVIDIA GPU")]
)
def test_a_learner_that_cannot_run_here_leaves_no_folder(market_file, tmp_path, hidden, reason):
    config = small_config(market_file, tmp_path / "run")
    asked = dataclasses.replace(config.output, learner="kernel")
    with pytest.raises(ConfigError, match=f"--learner kernel cannot run this study: {reason}. Use --learner auto or"):
        loop.train(dataclasses.replace(config, output=asked, dqn=dataclasses.replace(config.dqn, hidden=hidden)))
    assert not (tmp_path / "run").exists()


def test_policies_carry_what_it_takes_to_act(finished):
    arrays, meta = checkpoint.load_policy(finished / "policies" / "window-00-seed-01.safetensors")
    assert meta["window"] == 0
    assert meta["seed"] == 1
    assert meta["feature_names"] == ["f0", "f1", "f2", "f3"]
    assert arrays["scaler.center"].shape == (4,)
    assert arrays["layers[0].weight"].shape == (16, 4 + 3)


# On an accelerator an epoch begins before the one before it is told; what is computed is the same.
@pytest.mark.slow
def test_epochs_begun_early_change_no_byte_and_a_stop_follows_the_one_that_was_begun(
    market_file, tmp_path, monkeypatch
):
    config = small_config(market_file, tmp_path / "plain", epochs=7)
    config = dataclasses.replace(config, output=dataclasses.replace(config.output, checkpoint_every=5))
    plain = loop.train(config)
    monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    early = {name: dataclasses.replace(config.output, out=tmp_path / name) for name in ("early", "stopped")}
    whole = loop.train(dataclasses.replace(config, output=early["early"]))
    ends, finish = [], Engine.finish

    def stopping(engine, begun, last):
        ended = finish(engine, begun, last)
        ends.append(ended)
        if len(ends) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return ended

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "finish", stopping)
        with pytest.raises(Interrupted, match="Stopped after epoch 4 of 7"):
            loop.train(dataclasses.replace(config, output=early["stopped"]))
    stopped = tmp_path / "stopped"
    assert {path.stem for path in (stopped / "checkpoints").iterdir()} == {"best", "epoch-00004"}
    loop.resume(stopped, quiet=True)
    for folder in (whole, stopped):
        kept = {path.stem for path in (folder / "checkpoints").iterdir()}
        assert kept == {"best", "epoch-00005", "epoch-00007"}
        assert policies(folder) == policies(plain)
        assert (folder / "members.parquet").read_bytes() == (plain / "members.parquet").read_bytes()
        assert _metrics(folder) == _metrics(plain)
    last = [
        checkpoint.load_checkpoint(folder / "checkpoints" / "epoch-00007.safetensors")[0] for folder in (plain, whole)
    ]
    assert all(np.array_equal(last[0][name], last[1][name]) for name in last[0])


@pytest.mark.parametrize("number", [2, 3])
def test_a_stop_near_the_end_comes_before_the_test_months(number, market_file, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    ended, finish = [], Engine.finish

    def stopping(*args):
        ended.append(finish(*args))
        if len(ended) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return ended[-1]

    monkeypatch.setattr(Engine, "finish", stopping)
    with pytest.raises(Interrupted, match="Stopped after epoch 3 of 3"):
        loop.train(small_config(market_file, tmp_path / "run", epochs=3))
    monkeypatch.undo()
    run = layout.open_run(tmp_path / "run")
    assert layout.read_manifest(run)["status"] == "interrupted"
    loop.resume(tmp_path / "run", quiet=True)
    assert layout.read_manifest(run)["status"] == "complete"


# A program that finds no memory has freed the state it was given.
def test_an_epoch_that_finds_no_memory_leaves_the_one_before_it_told(market_file, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "device_runs_ahead", lambda: True)
    begun, begin = [], Engine.begin

    def failing(engine, state):
        begun.append(state)
        if len(begun) == 3:
            jax.tree.map(lambda leaf: leaf.delete(), state)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte.")
        return begin(engine, state)

    monkeypatch.setattr(Engine, "begin", failing)
    config = small_config(market_file, tmp_path / "run", epochs=4)
    with pytest.raises(TrainError, match=r"Out of memory \(RESOURCE_EXHAUSTED"):
        loop.train(dataclasses.replace(config, output=dataclasses.replace(config.output, checkpoint_every=4)))
    assert [line["epoch"] for line in results.read_metrics(layout.open_run(tmp_path / "run")).records] == [1, 2]
    assert len(begun) == 3, "it is not tried again"


def test_a_trace_holds_whole_epochs():
    tracer = Tracer(Path("profile"), print, range(3, 5))
    assert [epoch for epoch in range(1, 8) if tracer.is_near(epoch)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("epochs", "steps", "traced", "words"),
    [
        (range(1, 6), 50, range(2, 4), "epochs 2 and 3"),
        (range(1, 6), 500, range(2, 3), "epoch 2"),
        (range(1, 3), 50, range(2, 3), "epoch 2"),
        (range(1, 2), 50, range(1, 2), "epoch 1, the only one of this process"),
        (range(4, 6), 50, range(5, 6), "epoch 5"),
        (range(5, 6), 50, range(5, 6), "epoch 5, the only one of this process"),
    ],
)
def test_the_epoch_after_the_first_is_traced_and_where_there_is_none_that_is_said(
    epochs, steps, traced, words, tmp_path, monkeypatch
):
    monkeypatch.setattr(jax.profiler, "start_trace", lambda *_, **__: None)
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: None)
    said = []
    tracer = Tracer(tmp_path, said.append, steady(epochs, steps), epochs.start)
    for epoch in epochs:
        with tracer.watching(epoch):
            pass
    assert tracer.epochs == traced
    assert said[0].removeprefix("trace of ").startswith(words)
    assert len(said) == 1
    assert ("the only one" in said[0]) == (len(epochs) == 1)


def _metrics(folder: Path) -> list[dict]:
    lines = results.read_metrics(layout.open_run(folder)).records
    timed = ("phases_ms", "compile_ms", "epochs_per_s", "uploaded_bytes", "downloaded_bytes", "checkpoint_bytes")
    others = (*timed, "host_syncs", "resuming_bytes", "resuming_syncs")
    return [{name: line[name] for name in line if name not in others} for line in lines]
