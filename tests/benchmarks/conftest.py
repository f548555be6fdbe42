"""The benchmarks are programs beside the package; their tests import them from their folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
