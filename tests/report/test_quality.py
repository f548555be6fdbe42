from tidewalk.report.quality import MAX_ROWS, file_rows, finding_rows


def finding(text: str, *, is_warning: bool = False, count: int = 0, file: str | None = None) -> dict[str, object]:
    return {"defect": "spreads", "text": text, "count": count, "is_warning": is_warning, "file": file}


def symbol(name: str, findings: list[dict[str, object]], files: list[dict[str, object]]) -> dict[str, object]:
    return {"symbol": name, "findings": findings, "files": files}


def test_warnings_come_first_in_their_own_order():
    found = [finding("a"), finding("b", is_warning=True), finding("c", is_warning=True, count=12), finding("d")]
    rows = finding_rows([symbol("ES.FUT", found, [])])
    assert [row[2] for row in rows] == ["b", "c", "a", "d"]
    assert rows[1] == ["warning", "spreads", "c", "12", ""]


def test_rows_name_their_symbol_where_there_are_several():
    file = {"path": "x.csv", "kind": "csv", "schema": None, "rows_read": 10, "rows_kept": 0, "first_ts_ns": None}
    both = [symbol("ES.FUT", [finding("a")], [file]), symbol("NQ.FUT", [finding("b", is_warning=True)], [file])]
    assert [row[0] for row in finding_rows(both)] == ["NQ.FUT", "ES.FUT"]
    assert file_rows(both)[1] == ["NQ.FUT", "x.csv", "csv", "", "10", "0", "", ""]
    assert file_rows(both[:1]) == [["x.csv", "csv", "", "10", "0", "", ""]]


def test_thousands_of_findings_do_not_make_the_page_heavy():
    assert len(finding_rows([symbol("ES.FUT", [finding(str(n)) for n in range(5000)], [])])) == MAX_ROWS
