"""What do members, bars, windows, batch and width cost, in time and in memory?

One size at a time is changed from a base: the epoch of the starting point with its month of validation, of 8 members on
a CPU and 64 on a GPU. Time is the median of an epoch; memory is what the compiled program needs by the compiler's
account, beside what the formula of `tidewalk.train.memory` predicts. The curves are drawn where matplotlib is, also
later from the JSON of another machine.

    python benchmarks/curves.py [--device gpu] [--json FILE] [--plot FILE.svg]
    python benchmarks/curves.py --draw FILE.json --plot FILE.svg
"""

import argparse
import dataclasses
import gc
import json
import math
import sys
from pathlib import Path
from typing import Any

import children
import common
from common import Column, Report

COLUMNS = (
    Column("axis", "axis"),
    Column("value", "value", "{:,}"),
    Column("learner", "steps by"),
    Column("epoch_ms", "epoch, ms", "{:,.1f}"),
    Column("p10_p90", "p10-p90"),
    Column("compiler_mib", "by the compiler, MiB", "{:,.0f}"),
    Column("predicted_mib", "predicted, MiB", "{:,.0f}"),
    Column("compile_s", "compile, s", "{:.1f}"),
)
_CPU = {
    "members": (1, 8, 64),
    "bars": (1_000, 29_795, 100_000),
    "windows": (1, 2, 8),
    "batch": (16, 64, 256, 1024),
    "width": (32, 128, 256),
}
_GPU = {
    "members": (1, 8, 64, 512, 4096),
    "bars": (1_000, 29_795, 400_000),
    "windows": (1, 8, 64),
    "batch": (16, 64, 256, 1024),
    "width": (32, 128, 256),
}
_QUICK = {"members": (1, 2), "bars": (500, 1_500), "windows": (1, 2), "batch": (16, 32), "width": (8, 16)}
_MARKS = 6
"""About as many marks as an axis of time or memory has."""
_LABELS = {
    "members": "members",
    "bars": "bars of validation",
    "windows": "windows (members unchanged)",
    "batch": "batch of an update",
    "width": "units of each hidden layer",
}


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--axes", type=common.several(common.one_of(_CPU)), default=tuple(_CPU))
    parser.add_argument("--learner", choices=("auto", "xla"), default="auto", help="what runs the steps")
    parser.add_argument("--plot", type=common.file, help="where the curves are drawn (.svg or .png); needs --json")
    parser.add_argument("--draw", type=Path, help="draw the JSON of an earlier run, measure nothing")
    options = parser.parse_args()
    refuse(parser, options)
    if options.draw:
        draw(json.loads(options.draw.read_text()), options.plot)
        return 0
    code = measured(options)
    if options.plot and options.json:
        try:
            draw(json.loads(options.json.read_text()), options.plot)
        except ModuleNotFoundError as error:
            common.say(f"not drawn here ({error}): python benchmarks/curves.py --draw {options.json} --plot FILE.svg")
    return code


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a word where nothing could be drawn in the end."""
    if options.plot and options.plot.suffix not in (".svg", ".png"):
        parser.error(f"--plot {options.plot}: a name ends with .svg or .png")
    if options.plot and not (options.json or options.draw):
        parser.error("--plot draws the file of --json, or of --draw, and neither is given")
    if options.draw and not options.plot:
        parser.error("--draw needs --plot, where the curves go")
    if options.draw and not options.draw.is_file():
        parser.error(f"--draw {options.draw}: there is no such file")


def measured(options: argparse.Namespace) -> int:
    import jax

    from tidewalk.run import mesh

    mesh.make_reproducible()
    mesh.choose_platform(options.device)
    report = common.opened("curves", options, COLUMNS)
    is_cpu = jax.default_backend() == "cpu"
    axes = _QUICK if options.quick else _CPU if is_cpu else _GPU
    base = _base(2 if options.quick else 8 if is_cpu else 64, options)
    report.settings["base"] = dataclasses.asdict(base)
    rows: dict[Any, dict[str, Any]] = {}
    for axis in options.axes:
        for value in axes[axis]:
            with common.attempt(report, f"{axis} {value}"):
                setting = at(base, axis, value)
                rows[setting] = rows.get(setting) or point(report, setting, is_quick=options.quick)
                common.add(report, axis=axis, value=value, **rows[setting])
            gc.collect()
    return common.close(report)


def _base(members: int, options: argparse.Namespace) -> Any:
    import epoch
    import world

    found = world.Setting(members=members, windows=min(8, members), learner=options.learner)
    return epoch.small(found) if options.quick else found


def at(base: Any, axis: str, value: int) -> Any:
    """The base with one size changed; the market grows where the bars would not fit."""
    if axis == "members":
        return dataclasses.replace(base, members=value, windows=min(base.windows, value))
    if axis == "bars":
        return dataclasses.replace(base, val_bars=value, bars=max(base.bars, base.train_bars + value + 40_000))
    if axis == "width":
        return dataclasses.replace(base, hidden=(value, value))
    return dataclasses.replace(base, **{axis: value})


def point(report: Report, setting: Any, *, is_quick: bool) -> dict[str, Any]:
    """Time and memory of the epoch of a setting."""
    import world

    running, state = world.started(setting)
    calls = {"epoch": world.in_a_row(running, state)}
    del state
    timing = common.interleaved(report, calls, budget_s=0.0 if is_quick else 1.0)["epoch"]
    return {
        "learner": running.study.program.learner,
        "epoch_ms": timing.median_ms,
        "p10_p90": common.spread(timing),
        "compiler_mib": world.mib(world.peak_bytes(running)),
        "predicted_mib": world.predicted_mib(running),
        "compile_s": world.compile_s(running),
        "samples_ms": timing.samples_ms,
    }


def draw(content: dict[str, Any], path: Path) -> None:
    """The curves of a JSON file: time above, memory below, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "curves", "font.size": 9}
    import matplotlib.pyplot as plt

    axes = [axis for axis in _LABELS if any(row["axis"] == axis for row in content["rows"])]
    figure, panels = plt.subplots(2, len(axes), figsize=(3.1 * len(axes), 5.6), sharey="row", squeeze=False)
    kinds = (
        {"epoch_ms": ("epoch, median", "C0", "-")},
        {"compiler_mib": ("by the compiler", "C2", "-"), "predicted_mib": ("by formula", "C3", "--")},
    )
    for column, axis in enumerate(axes):
        rows = sorted((row for row in content["rows"] if row["axis"] == axis), key=lambda row: row["value"])
        for line, kind in enumerate(kinds):
            _panel(panels[line][column], rows, kind)
        panels[1][column].set_xlabel(_LABELS[axis])
    for line, kind in enumerate(kinds):
        _mark(panels[line][0], [row[key] for row in content["rows"] for key in kind if row.get(key) is not None])
    panels[0][0].set_ylabel("time of an epoch, ms")
    panels[1][0].set_ylabel("memory of the program, MiB")
    panels[0][0].legend(frameon=False)
    panels[1][0].legend(frameon=False)
    found = content["environment"]
    where = found["device"] if found["device"] != "cpu" else f"{found['processor']}, {found['cores']} cores"
    figure.suptitle(
        f"{where}, jax {found['versions']['jax']}, {found['date'][:10]}; one size at a time changed from "
        f"{_base_in_words(content['settings']['base'])}",
        fontsize=10,
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    common.say(f"drawn: {path}")


def _base_in_words(base: dict[str, Any]) -> str:
    units = "-".join(map(str, base["hidden"]))
    return (
        f"{base['members']} members in {base['windows']} windows, {base['steps']} updates of batch {base['batch']}, "
        f"{units} units, {base['val_bars']:,} bars of validation"
    )


def _panel(panel: Any, rows: list[dict[str, Any]], kinds: dict[str, tuple[str, str, str]]) -> None:
    from matplotlib.ticker import NullLocator

    panel.set_xscale("log")
    panel.set_yscale("log")
    for key, (label, colour, line) in kinds.items():
        points = [(row["value"], row[key]) for row in rows if row.get(key) is not None]
        if points:
            panel.plot(*zip(*points, strict=True), line, marker="o", markersize=4, color=colour, label=label)
    values = [row["value"] for row in rows]
    panel.set_xticks(values, [_short(value) for value in values])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(visible=True, alpha=0.3)


def _mark(panel: Any, values: list[float]) -> None:
    """Powers of two along the common axis of a row of panels, so that flat curves have marks too."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    step = max(1, (high - low) // _MARKS)
    panel.set_ylim(2.0 ** (low - 0.5), 2.0 ** (high + 0.5))
    panel.yaxis.set_major_locator(FixedLocator([2.0**power for power in range(low, high + 1, step)]))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _short(value: int) -> str:
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:,}"


if __name__ == "__main__":
    sys.exit(children.guarded(main))
