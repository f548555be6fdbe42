"""Files that are market data by their name, subdirectories, and a vendor's side files."""

import json
from pathlib import Path

import pytest

from data.market_files import bars, dbn, put
from tidewalk.core.errors import DataError
from tidewalk.data.files.catalog import catalogue
from tidewalk.data.files.folder import claims_data, is_side_file, listing, poor_days

SIDE_FILES = (
    *("condition.json", "metadata.json", "manifest.json", "symbology.json", "symbology.csv", "SHA256SUMS"),
    *("es.dbn.md5", ".DS_Store", "Thumbs.db", "manifest"),
)


@pytest.mark.parametrize("name", SIDE_FILES)
def test_side_files(name: str) -> None:
    assert is_side_file(name)


@pytest.mark.parametrize("name", ["es.dbn", "bars.json", "metadata.csv", "es_condition.csv", "condition.txt"])
def test_no_side_files(name: str) -> None:
    assert not is_side_file(name)


def test_what_claims_to_be_data() -> None:
    claims = {name: claims_data(name) for name in ("a.dbn", "a.CSV.gz", "a.zst", "a.zip", "a.pdf", "a", "a.tar.gz")}
    assert claims == {
        "a.dbn": True,
        "a.CSV.gz": True,
        "a.zst": True,
        "a.zip": True,
        "a.pdf": False,
        "a": False,
        "a.tar.gz": False,
    }


def test_a_batch_download_in_its_job_folder_is_read(tmp_path: Path) -> None:
    job = tmp_path / "GLBX-20240102-ABC"
    job.mkdir()
    put(job, "es.dbn", dbn(bars(100, 5)))
    put(tmp_path, "SHA256SUMS", "x")
    (tmp_path / "notes").mkdir()
    found = catalogue(tmp_path)
    assert [file.source.name for file in found.dbn] == ["es.dbn"]
    assert [finding.text for finding in found.findings] == [
        "the directory holds no data files itself; its subdirectory GLBX-20240102-ABC is read",
        "subdirectories are not read: notes",
    ]


def test_two_job_folders_need_a_choice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        put(tmp_path / name, "es.dbn", dbn(bars(100, 5)))
    with pytest.raises(
        DataError, match=r"no data files, but 2 subdirectories with some: one, two\. Point --data-dir at"
    ):
        listing(tmp_path)
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    files, findings = listing(tmp_path)
    assert [path.name for path in files] == ["es.dbn"]
    assert findings[0].text == "subdirectories are not read: one, two"


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the directory holds no files"):
        listing(tmp_path)


def test_poor_days_are_a_warning(tmp_path: Path) -> None:
    days = [{"date": f"2024-01-{day:02}", "condition": "available"} for day in range(1, 20)]
    days[3]["condition"] = days[4]["condition"] = "degraded"
    days[9]["condition"] = "missing"
    put(tmp_path, "condition.json", json.dumps(days))
    put(tmp_path, "es.dbn", dbn(bars(100, 5)))
    lines = [(finding.line, finding.count, finding.is_warning) for finding in catalogue(tmp_path).findings]
    assert lines == [
        ("condition.json: the vendor calls the data of 2024-01-04, 2024-01-05 degraded", 2, True),
        ("condition.json: the vendor calls the data of 2024-01-10 missing", 1, True),
    ]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"date": 1}]', "[" * 100_000, '{"a": {"b": 1}}', "\0"])
def test_a_condition_file_of_another_form_is_said_and_does_no_harm(tmp_path: Path, content: str) -> None:
    findings = poor_days(put(tmp_path, "condition.json", content))
    if content != "{}":
        assert [finding.text for finding in findings] == [
            "not in the form that is known; what it says of the days is not used"
        ]
