"""Twenty years of ES.FUT from files to a prepared market: seconds by stage and peak memory, without and with the cache.

The directory is made once by the sample generator (one DBN file per month, 5.5 million bars of outrights and the
calendar spreads) and kept for the next run. Every row of the table is a fresh Python process, so that its peak is its
own. Files are in the page cache of the system: what is measured is the reader, not the disk.

    python benchmarks/market_files.py [--years 20] [--volume 0.02] [--folder DIR] [--repeat 3] [--json FILE]
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODES = ("stages", "files to market", "files to market, kept in the cache", "cache to market")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=20)
    parser.add_argument("--volume", type=float, default=0.02, help="share of the usual volume, see `tidewalk sample`")
    parser.add_argument("--files", choices=("month", "year"), default="month")
    parser.add_argument("--folder", type=Path, help="where the files are kept between runs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    name = f"tidewalk-market-{options.years}y-{options.volume:g}-{options.files}"
    folder = options.folder or Path(tempfile.gettempdir()) / name
    if options.mode:
        print(json.dumps(measure(options.mode, folder)))
        return
    results = {"cores": len(os.sched_getaffinity(0)), **written(folder, options), "runs": {}}
    for path in (folder / "cache").glob("*.market"):
        path.unlink()
    for _ in range(options.repeat):
        for mode in MODES:
            results["runs"].setdefault(mode, []).append(in_a_process_of_its_own(mode, folder))
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def written(folder: Path, options: argparse.Namespace) -> dict:
    """The sample, written where it is not there yet."""
    from tidewalk.data.sample.synthetic import SampleConfig, write_sample

    start, paths = time.perf_counter(), sorted((folder / "data").glob("*.dbn.zst"))
    is_new = not paths
    if is_new:
        first = f"{2024 - options.years}-01"
        config = SampleConfig(years=options.years, volume=options.volume, files=options.files, start=first)
        paths = write_sample(folder / "data", config)
    return {
        "files": len(paths),
        "mib": sum(path.stat().st_size for path in paths) / 2**20,
        "write_s": time.perf_counter() - start if is_new else None,
    }


def in_a_process_of_its_own(mode: str, folder: Path) -> dict:
    command = [sys.executable, __file__, "--mode", mode, "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(mode: str, folder: Path) -> dict:
    """One way from files to market; seconds without the imports."""
    from tidewalk.data.load import DataConfig
    from tidewalk.market.cache import Cache, cached
    from tidewalk.market.prepare import SeriesConfig, prepare_market

    data, series = DataConfig(folder / "data", "ES.FUT"), SeriesConfig()
    base_mib, start = peak_mib(), time.perf_counter()
    if mode == "stages":
        return stages(data)
    (folder / "cache").mkdir(exist_ok=True)
    if mode == MODES[2]:
        for path in (folder / "cache").glob("*.market"):
            path.unlink()
    cache = None if mode == MODES[1] else Cache(folder / "cache", keeps_all=True)
    market = cached(cache, data, series, lambda: prepare_market(data, series), lambda _: None)
    found = {"s": time.perf_counter() - start, "peak_mib": peak_mib(), "imports_mib": base_mib}
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
        times[name], peaks[name] = time.perf_counter() - start, peak_mib()
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


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def show(results: dict) -> None:
    runs = results["runs"]
    one, market = runs["stages"][0], runs[MODES[1]][0]
    made = "there before" if results["write_s"] is None else f"written in {results['write_s']:.1f} s"
    print(
        f"{results['files']} files, {results['mib']:.0f} MiB ({made}): {one['outright_rows']:,} rows of "
        f"{one['contracts']} outrights, {market['bars']:,} bars of the front contract, {market['features']} features, "
        f"{results['cores']} cores"
    )
    print(f"{'':<40} {'median s':>9} {'min s':>8} {'peak MiB':>9}")
    for name in one["stage_s"]:
        row([run["stage_s"][name] for run in runs["stages"]], name, [r["stage_peak_mib"][name] for r in runs["stages"]])
    for mode in MODES[1:]:
        row([run["s"] for run in runs[mode]], mode, [run["peak_mib"] for run in runs[mode]])
    sums = {run["digest"] for mode in MODES[1:] for run in runs[mode]}
    print(f"the markets are {'the same' if len(sums) == 1 else 'NOT the same'}: {', '.join(sorted(sums))}")


def row(seconds: list[float], name: str, peaks: list[float]) -> None:
    print(f"{name:<40} {statistics.median(seconds):>9.2f} {min(seconds):>8.2f} {max(peaks):>9,.0f}")


if __name__ == "__main__":
    main()
