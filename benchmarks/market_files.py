"""Twenty years of ES.FUT from files to a prepared market: seconds by stage and peak memory, without and with the cache.

The directory is made once by the sample generator (one DBN file per month, 5.5 million bars of outrights and the
calendar spreads) and kept for the next run. Every row of the table is a fresh Python process, so that its peak is its
own. Files are in the page cache of the system: what is measured is the reader, not the disk.

    python benchmarks/market_files.py [--years 20] [--volume 0.02] [--folder DIR] [--repeat 3] [--json FILE]
"""

import argparse
import functools
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import children
import common
from common import Column, Report

COLUMNS = (
    Column("stage", ""),
    Column("median_s", "median, s", "{:.2f}"),
    Column("min_s", "min, s", "{:.2f}"),
    Column("peak_mib", "peak, MiB", "{:,.0f}"),
    Column("runs", "runs"),
)
MODES = ("stages", "files to market", "files to market, kept in the cache", "cache to market")


def main() -> int:
    parser = common.parser(__doc__, device=False)
    parser.add_argument("--years", type=common.at_least(1), default=20)
    parser.add_argument(
        "--volume",
        type=common.at_least(0.001, float),
        default=0.02,
        help="share of the usual volume, see `tidewalk sample`",
    )
    parser.add_argument("--files", choices=("month", "year"), default="month")
    parser.add_argument("--folder", type=common.folder, help="where the files are kept between runs")
    parser.add_argument("--repeat", type=common.at_least(1), default=3)
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.years, options.repeat = 1, 1
    name = f"tidewalk-market-{options.years}y-{options.volume:g}-{options.files}"
    folder = options.folder or Path(tempfile.gettempdir()) / name
    if options.mode:
        print(json.dumps(measure(options.mode, folder)))
        return 0
    report = common.opened("market_files", options, COLUMNS)
    report.notes.append(written(folder, options))
    for path in (folder / "cache").glob("*.market"):
        path.unlink()
    runs: dict[str, list[dict]] = {mode: [] for mode in MODES}
    calls = {mode: functools.partial(run_once, mode, folder, runs[mode]) for mode in MODES}
    # Never backwards: what the third way keeps in the cache, the fourth finds there.
    for _ in range(options.repeat):
        common.interleaved(report, calls, rounds=1, warm_up=0)
    show(report, runs)
    return common.close(report)


def run_once(mode: str, folder: Path, runs: list[dict]) -> float:
    """One way in a process of its own, which times itself, in milliseconds."""
    command = [sys.executable, __file__, "--mode", mode, "--folder", folder]
    runs.append(json.loads(children.run_quietly(command).splitlines()[-1]))
    return 1e3 * runs[-1].get("s", 0.0)


def written(folder: Path, options: argparse.Namespace) -> str:
    """The sample, written where it is not there yet; in words."""
    from tidewalk.data.sample.synthetic import SampleConfig, write_sample

    start, paths = time.perf_counter(), sorted((folder / "data").glob("*.dbn.zst"))
    made = "there before"
    if not paths:
        first = f"{2024 - options.years}-01"
        config = SampleConfig(years=options.years, volume=options.volume, files=options.files, start=first)
        part = folder / "data.part"  # what is stopped half-way is not taken for a market later
        shutil.rmtree(part, ignore_errors=True)
        write_sample(part, config)
        paths = sorted(part.replace(folder / "data").glob("*.dbn.zst"))
        made = f"written in {time.perf_counter() - start:.1f} s"
    return f"{len(paths)} files, {sum(path.stat().st_size for path in paths) / 2**20:.0f} MiB ({made})"


def measure(mode: str, folder: Path) -> dict:
    """One way from files to market; seconds without the imports."""
    from tidewalk.data.load import DataConfig
    from tidewalk.market.cache import Cache, cached
    from tidewalk.market.prepare import SeriesConfig, prepare_market

    data, series = DataConfig(folder / "data", "ES.FUT"), SeriesConfig()
    base_mib, start = common.peak_mib(), time.perf_counter()
    if mode == "stages":
        return stages(data)
    (folder / "cache").mkdir(exist_ok=True)
    if mode == MODES[2]:
        for path in (folder / "cache").glob("*.market"):
            path.unlink()
    cache = None if mode == MODES[1] else Cache(folder / "cache", keeps_all=True)
    market = cached(cache, data, series, lambda: prepare_market(data, series), lambda _: None)
    found = {"s": time.perf_counter() - start, "peak_mib": common.peak_mib(), "imports_mib": base_mib}
    return {**found, "bars": market.num_bars, "features": market.features.shape[1], "digest": digest(market)}


def stages(data) -> dict:
    """Seconds of each stage, one after the other."""
    from tidewalk.core.memory import release_freed
    from tidewalk.data.contracts.rolls import front_series
    from tidewalk.data.contracts.specs import spec_for
    from tidewalk.data.load import load_bars
    from tidewalk.market.user_features import build_features

    times, peaks = {}, {}

    def timed(name: str, job):
        start = time.perf_counter()
        made = job()
        times[name], peaks[name] = time.perf_counter() - start, common.peak_mib()
        return made

    loaded = timed("files -> Loaded", lambda: load_bars(data))
    rows = {"outright_rows": sum(len(table.ts_ns) for table in loaded.tables), "contracts": len(loaded.tables)}
    series = timed("Loaded -> FrontSeries", lambda: front_series(loaded, spec_for("ES"), "volume"))
    del loaded
    release_freed()
    timed("FrontSeries -> features", lambda: build_features(series, None))
    return {**rows, "stage_s": times, "stage_peak_mib": peaks}


def digest(market) -> str:
    """So that the ways are seen to give the same market."""
    import hashlib

    total = hashlib.sha256(market.features)
    total.update(market.move_ticks.tobytes() + market.flags.tobytes() + json.dumps(market.info.notes).encode())
    return total.hexdigest()[:12]


def show(report: Report, runs: dict[str, list[dict]]) -> None:
    """A row for each stage and each way, and what they read."""
    stages, ways = runs["stages"], {mode: found for mode, found in runs.items() if mode != "stages" and found}
    for name in stages[0]["stage_s"] if stages else ():
        row(report, name, [run["stage_s"][name] for run in stages], [run["stage_peak_mib"][name] for run in stages])
    for mode, found in ways.items():
        row(report, mode, [run["s"] for run in found], [run["peak_mib"] for run in found])
    if not stages or not ways:
        return
    stage, market = stages[0], next(iter(ways.values()))[0]
    sums = {run["digest"] for found in ways.values() for run in found}
    report.notes.append(
        f"{stage['outright_rows']:,} rows of {stage['contracts']} outrights, {market['bars']:,} bars of the front "
        f"contract, {market['features']} features; the markets are "
        f"{'the same' if len(sums) == 1 else 'NOT the same'}: {', '.join(sorted(sums))}"
    )


def row(report: Report, name: str, seconds: list[float], peaks: list[float]) -> None:
    common.add(
        report,
        stage=name,
        median_s=statistics.median(seconds),
        min_s=min(seconds),
        peak_mib=max(peaks),
        runs=len(seconds),
    )


if __name__ == "__main__":
    sys.exit(children.guarded(main))
