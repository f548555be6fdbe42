"""One finished study for all tests of a process that look at a run and do not change it."""

import atexit
import dataclasses
import functools
import shutil
import tempfile
from pathlib import Path

from support import planted_market, small_config
from tidewalk.market.device import save_market
from tidewalk.run import loop
from tidewalk.trading.costs import CostConfig


@functools.cache
def finished_run() -> Path:
    """Run folder of 3 windows x 2 seeds on `market.npz` beside it; copy it before you change it."""
    folder = Path(tempfile.mkdtemp(prefix="tidewalk-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    save_market(folder / "market.npz", planted_market(days=182))
    config = small_config(folder / "market.npz", folder / "runs" / "done")
    return loop.train(dataclasses.replace(config, costs=CostConfig(commission_usd=2.0, slippage_ticks=0.5)))


def copy_of_run(folder: Path) -> Path:
    """A copy of the finished run that a test may change."""
    return Path(shutil.copytree(finished_run(), folder / "copy"))
