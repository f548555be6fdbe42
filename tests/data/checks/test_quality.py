"""Findings: told once, of a known kind, warnings last, few lines for a person and all records for a program."""

import json

import pytest

from tidewalk.data.checks.quality import MAX_LINES, Finding, in_file, notes, ordered, records, warnings


def test_a_kind_that_no_check_could_ask_for_is_refused() -> None:
    with pytest.raises(ValueError, match="'odd' is no key of DEFECTS"):
        Finding("odd", "text")


def test_what_several_files_share_is_said_once() -> None:
    said = Finding("time-zone", "stamps are wall time of Europe/Berlin (--tz)")
    blank = Finding("dialect", "blank rows: 2", 2)
    per_file = [*in_file("b.csv", [said, blank]), *in_file("a.csv", [said, blank]), *in_file("a.csv", [said])]
    both, counted = ordered(per_file)
    assert both.line == "a.csv, b.csv: stamps are wall time of Europe/Berlin (--tz)"
    assert (counted.line, counted.count) == ("a.csv, b.csv: blank rows: 2", 4)
    many = ordered(in_file(f"{i}.csv", [said])[0] for i in range(9))
    assert [finding.file for finding in many] == ["0.csv, 1.csv, 2.csv, 3.csv and 5 more"]


def test_warnings_come_last_and_the_order_within_is_kept() -> None:
    found = [Finding("roll", "one", is_warning=True), Finding("roll", "two"), Finding("size", "three")]
    assert [finding.text for finding in ordered(found)] == ["two", "three", "one"]
    assert (notes(found), warnings(found)) == (("two", "three"), ("one",))


def test_a_person_gets_a_dozen_lines_of_a_kind_and_a_program_all() -> None:
    found = [Finding("unmapped", f"line {i}") for i in range(40)] + [Finding("roll", "last")]
    lines = notes(found)
    assert len(lines) == MAX_LINES + 2
    assert lines[MAX_LINES - 1 : MAX_LINES + 1] == ("line 11", "last")
    assert lines[-1] == "and 28 more on records that belong to no symbol"
    assert len(json.loads(json.dumps(records(found)))) == 41
    assert records(found)[0] == {"defect": "unmapped", "text": "line 0", "count": 0, "is_warning": False, "file": None}
