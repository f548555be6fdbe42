"""What each file of a directory is."""

import io
import json
import time
import zipfile
from pathlib import Path

import pytest

from data.market_files import bars, csv_text, dbn, header, put, zst
from tidewalk.core.errors import ConfigError, DataError
from tidewalk.data.files.catalog import Catalog, catalogue


def names(found: Catalog) -> dict[str, list[str]]:
    return {
        "dbn": [file.source.name for file in found.dbn],
        "tables": [table.source.name for table in found.tables],
        "ignored": [file.path for file in found.ignored],
        "unreadable": list(found.unreadable),
    }


def zipped(**content: bytes | str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_content_tells_and_not_the_name(tmp_path: Path) -> None:
    put(tmp_path, "bars.bin", dbn(bars(100, 5)))
    put(tmp_path, "minutes.csv", csv_text())
    put(tmp_path, "orders.dbn", header(schema="mbo"))
    put(tmp_path, "README.md", "words")
    put(tmp_path, "picture.png", b"\x89PNG\r\n\x1a\n\0\0")
    assert names(catalogue(tmp_path)) == {
        "dbn": ["bars.bin"],
        "tables": ["minutes.csv"],
        "ignored": ["README.md", "orders.dbn", "picture.png"],
        "unreadable": [],
    }


def test_files_of_a_zip_are_files_of_their_own(tmp_path: Path) -> None:
    inside = {"es.dbn.zst": zst(dbn(bars(100, 5))), "es2.csv": csv_text(), "metadata.json": "{}", "manual.pdf": b"\0"}
    put(tmp_path, "job.zip", zipped(**inside))
    assert names(catalogue(tmp_path)) == {
        "dbn": ["job.zip!es.dbn.zst"],
        "tables": ["job.zip!es2.csv"],
        "ignored": ["job.zip!manual.pdf"],
        "unreadable": [],
    }


def test_damage_inside_a_zip_is_not_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "job.zip", zipped(**{"good.dbn": dbn(bars(100, 5)), "bad.dbn": "no data"}))
    with pytest.raises(DataError, match=r"job\.zip!bad\.dbn: named DBN but holds text"):
        catalogue(tmp_path)


@pytest.mark.parametrize("schema", ["mbo", "status", "imbalance"])
def test_schemas_that_are_not_read_say_what_to_do(tmp_path: Path, schema: str) -> None:
    path = put(tmp_path, "x.dbn", header(schema=schema))
    with pytest.raises(DataError, match=rf"x\.dbn: holds the schema {schema}; .*download .*ohlcv-1m"):
        catalogue(path)
    assert catalogue(tmp_path).ignored[0].notes[0].startswith(f"ignored: holds the schema {schema};")


def test_no_such_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or directory"):
        catalogue(tmp_path / "gone")


def test_thousands_of_files_and_members_are_listed_in_seconds(tmp_path: Path) -> None:
    content = dbn(bars(100, 5))
    for number in range(600):
        put(tmp_path, f"{number:04}.dbn", content)
        put(tmp_path, f"{number:04}.dbn.md5", "x")
    put(tmp_path, "job.zip", zipped(**{f"{number:04}.dbn": content for number in range(1_000)}))
    put(tmp_path, "condition.json", json.dumps([{"date": "2024-01-02", "condition": "available"}] * 5_000))
    started = time.process_time()
    found = catalogue(tmp_path)
    assert len(found.dbn) == 1_600
    assert time.process_time() - started < 10


def test_documents_inside_a_zip_are_no_tables(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ES.zip", "w") as archive:
        archive.writestr("ES_2024.csv", csv_text(4))
        archive.writestr("readme.txt", "Thank you.")
    found = catalogue(tmp_path)
    assert [header.source.name for header in found.tables] == ["ES.zip!ES_2024.csv"]
    assert not found.unreadable
    assert [file.path for file in found.ignored] == ["ES.zip!readme.txt"]


def test_a_workbook_is_told_how_to_become_a_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ES.xlsx", "w") as archive:
        for part in ("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            archive.writestr(part, "<a/>")
    with pytest.raises(DataError, match=r"ES\.xlsx: an Excel workbook\. Save its sheet as CSV"):
        catalogue(tmp_path / "ES.xlsx")
    put(tmp_path, "ES.csv", csv_text(4))
    found = catalogue(tmp_path)
    assert len(found.tables) == 1
    assert ["Excel workbook" in file.notes[0] for file in found.ignored] == [True]
