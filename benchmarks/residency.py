"""What residency is worth: the same study with its market resident, and freed and uploaded again at every epoch.

The epoch is that of the starting point: 50 updates of batch 64, 64 collection lanes moving one bar per update, and a
month of validation. Both trainers run the same compiled program, their epochs interleaved in one process; medians over
the epochs after a warm-up.

    python benchmarks/residency.py [--device gpu] [--epochs 30] [--months 24] [--json FILE]
"""

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path

from tidewalk.data.load import DataConfig
from tidewalk.data.sample.synthetic import SampleConfig, write_sample
from tidewalk.market.windows import WindowConfig
from tidewalk.run import mesh
from tidewalk.run.settings import OutputConfig, RunConfig
from tidewalk.train.population import TrainConfig

WARM_UP = 3


def starting_point(data_dir: Path, seeds: int, options: argparse.Namespace) -> RunConfig:
    return RunConfig(
        data=DataConfig(data_dir=data_dir, symbol="ES.FUT"),
        windows=WindowConfig(train_months=3, val_months=1, test_months=1, step_months=3),
        train=TrainConfig(epochs=options.epochs, max_steps_per_epoch=50, seeds=seeds, lanes=64),
        output=OutputConfig(device=options.device, precision=options.precision, profile=options.profile),
    )


def measure(config: RunConfig, market, *, num_windows: int | None) -> dict:
    """Median epoch of the resident and of the re-uploading trainer, interleaved."""
    from tidewalk.run.engine import start
    from tidewalk.run.study import plan_study

    study = plan_study(config, [market], compose=mesh.compose_form())
    if num_windows:
        (leg,) = study.legs
        plan = dataclasses.replace(leg.plan, windows=leg.plan.windows[:num_windows])
        study = dataclasses.replace(
            study,
            legs=(dataclasses.replace(leg, plan=plan),),
            windows=first_windows(study.windows, num_windows),
        )
    trainers = {"resident": start(study), "re-uploading": start(study, is_resident=False)}
    times = {name: [] for name in trainers}
    states = {name: state for name, (_, state) in trainers.items()}
    before = {}
    for epoch in range(WARM_UP + config.train.epochs):
        for name, (engine, _) in trainers.items():
            if epoch == WARM_UP:
                before[name] = engine.uploads.nbytes
            states[name], _, phases = engine.run_epoch(states[name])
            if epoch >= WARM_UP:
                times[name].append(phases)
    return {
        "members": study.num_members,
        "validation_bars": study.program.val_bars,
        **{
            name: summary(times[name], (engine.uploads.nbytes - before[name]) / config.train.epochs, engine)
            for name, (engine, _) in trainers.items()
        },
    }


def first_windows(windows, count: int):
    import jax

    return jax.tree.map(lambda leaf: leaf[:count], windows)


def summary(times: list, uploaded: float, engine) -> dict:
    phases = {}
    for field in dataclasses.fields(times[0]):
        values = [getattr(one, field.name) for one in times]
        phases[field.name] = None if values[0] is None else statistics.median(values)
    return {
        "ms": phases,
        "ms_p10_p90": [sorted(t.total for t in times)[int(q * (len(times) - 1))] for q in (0.1, 0.9)],
        "uploaded_bytes_per_epoch": uploaded,
        "compile_ms": engine.compile_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "gpu"))
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--months", type=int, default=24)
    parser.add_argument("--profile", action="store_true", help="phased form: one call per phase")
    parser.add_argument("--members", default="1x1,7x4", help="windows x seeds, comma separated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    from tidewalk.run.markets import read_market

    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder) / "market", SampleConfig(months=options.months))
        base = starting_point(Path(folder) / "market", 1, options)
        market = read_market(base)
        results = {"device": mesh.describe(), "precision": options.precision, "bars": market.num_bars, "cases": []}
        for shape in options.members.split(","):
            windows, seeds = (int(part) for part in shape.split("x"))
            config = starting_point(Path(folder) / "market", seeds, options)
            results["cases"].append(measure(config, market, num_windows=windows))
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def show(results: dict) -> None:
    print(f"{results['device']}, {results['precision']}, {results['bars']:,} bars")
    for case in results["cases"]:
        resident, again = case["resident"], case["re-uploading"]
        ratio = again["ms"]["total"] / resident["ms"]["total"]
        print(
            f"{case['members']} member(s), validation {case['validation_bars']:,} bars: "
            f"re-uploading / resident = {ratio:.2f}"
        )
        for name in ("resident", "re-uploading"):
            row = case[name]
            parts = "  ".join(f"{key} {value:.3f}" for key, value in row["ms"].items() if value is not None)
            print(
                f"  {name:<13} ms: {parts}  p10-p90 {row['ms_p10_p90'][0]:.2f}-{row['ms_p10_p90'][1]:.2f}  "
                f"uploaded {row['uploaded_bytes_per_epoch']:,.0f} B/epoch"
            )


if __name__ == "__main__":
    main()
