from pathlib import Path

import pytest

from tidewalk.core.errors import StoreError
from tidewalk.store import layout, quality

FINDING = {"defect": "off-tick", "text": "2 bars", "count": 2, "is_warning": True, "file": None}
SYMBOL = {"symbol": "ES.FUT", "data_fingerprint": "abc", "files": [{"path": "es.dbn"}], "findings": [FINDING]}


def test_quality_comes_back(tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "run", overwrite=False)
    quality.write_quality(run, [SYMBOL])
    assert quality.read_quality(run) == {"schema": 1, "symbols": [SYMBOL]}
    layout.finish_manifest(run, "complete")
    assert "data_quality.json" in layout.read_manifest(run)["files"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"findings": [{**FINDING, "colour": "red"}]}, r"symbols\[0\].findings\[0\]: key 'colour' is not one of"),
        ({"findings": [{"defect": "off-tick"}]}, "key 'text', 'count', 'is_warning', 'file' is missing"),
        ({"files": [float("nan")]}, "nan: not a number that can be stored"),
    ],
)
def test_what_no_reader_could_use_is_refused(change: dict[str, object], says: str, tmp_path: Path) -> None:
    run = layout.create_run(tmp_path / "run", overwrite=False)
    with pytest.raises(StoreError, match=says):
        quality.write_quality(run, [{**SYMBOL, **change}])
    assert not run.quality.exists()
