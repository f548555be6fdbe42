"""Dates of the contracts in the data: from definitions, by rule, and for codes that do not name one year."""

import dataclasses

import pytest

from data.contract_tables import DATE, DAY_NS, EPOCH, by_hand, loaded, table
from tidewalk.data.bars import BarTable, Definition
from tidewalk.data.contracts.rolls import front_series
from tidewalk.data.contracts.specs import spec_for
from tidewalk.data.contracts.terms import NEVER, Terms, date_of, day_number, in_order_of_expiry, terms_of


def bars(code: str, *days: DATE, instrument_id: int = 1) -> BarTable:
    made = table(code, dict.fromkeys(days, (1, 100.0)))
    return dataclasses.replace(made, instrument_id=instrument_id)


def defined(code: str, last: DATE, instrument_id: int = 1) -> Definition:
    end_ns = (last - EPOCH).days * DAY_NS + 14 * 3600 * 10**9
    return Definition(code, instrument_id, True, 10_000_000, None, "", end_ns)


def expiries(terms: Terms) -> list[str]:
    return ["" if day is None else str(date_of(day)) for day in terms.expiry_day]


def test_dates_by_rule():
    terms = terms_of(loaded(bars("GCG4", DATE(2024, 1, 5)), bars("GCH4", DATE(2024, 1, 5))), spec_for("GC"))
    assert expiries(terms) == ["2024-02-27", "2024-03-26"]
    assert [str(date_of(day)) for day in terms.safe_day] == ["2024-01-29", "2024-02-27"]
    assert terms.is_usual.tolist() == [True, False]
    assert terms.is_scheduled.tolist() == [True, True]
    assert terms.place.tolist() == [terms.place[0]] * 2  # March has the place of February
    assert terms.findings == ()


@pytest.mark.parametrize("code", ["ESZ4", "ESZ24", "ESZ2024"])
def test_the_last_bar_tells_the_decade(code):
    early = terms_of(loaded(bars("ESZ4", DATE(2013, 10, 7), DATE(2014, 12, 19))), spec_for("ES"))
    assert expiries(early) == ["2014-12-19"]
    late = terms_of(loaded(bars(code, DATE(2024, 10, 7), DATE(2024, 12, 19))), spec_for("ES"))
    assert expiries(late) == ["2024-12-20"]


@pytest.mark.parametrize(
    ("root", "code", "day", "is_warned"),
    [
        ("ES", "ESH4", DATE(2024, 6, 18), True),  # three months after it expired, so that March 2034 is meant
        ("ES", "ESH4", DATE(2024, 3, 15), False),
        ("ES", "ESZ9", DATE(2024, 12, 2), False),  # listed five years ahead
        ("ES", "ESH34", DATE(2024, 6, 18), False),  # says so itself
        ("CL", "CLZ4", DATE(2015, 1, 5), False),  # listed ten years ahead
    ],
)
def test_a_code_whose_contract_is_over_is_doubted(root, code, day, *, is_warned):
    findings = terms_of(loaded(bars(code, day)), spec_for(root)).findings
    assert any(finding.is_warning for finding in findings) == is_warned
    if is_warned:
        assert "ESH4 has bars up to 2024-06-18" in findings[0].text
        assert "taken as 2034-03" in findings[0].text


def test_a_definition_names_the_last_day_of_a_code_in_whatever_spelling():
    data = loaded(bars("ESZ24", DATE(2024, 12, 2)))
    for code in ("ESZ4", "ESZ24"):
        terms = terms_of(dataclasses.replace(data, definitions=(defined(code, DATE(2024, 12, 18)),)), spec_for("ES"))
        assert expiries(terms) == ["2024-12-18"]
        assert date_of(terms.safe_day[0]) == DATE(2024, 12, 18)


def test_definitions_of_other_instruments_and_other_decades_are_not_used():
    data = loaded(bars("ESZ4", DATE(2024, 12, 2)))
    others = (
        defined("ESZ4", DATE(2014, 12, 18)),
        defined("ESZ4", DATE(2034, 12, 18), instrument_id=99),
        defined("NQZ4", DATE(2024, 12, 17)),
        defined("ESZ4-ESH5", DATE(2024, 12, 17)),
        dataclasses.replace(defined("ESZ4", DATE(2024, 12, 17)), expiration_ns=None),
    )
    assert expiries(terms_of(dataclasses.replace(data, definitions=others), spec_for("ES"))) == ["2024-12-20"]


def test_crude_oil_of_ten_years_ahead_is_known_by_its_definition_or_by_its_bars():
    """CLZ4 in January 2014 is December 2014, or December 2024, which trades too."""
    day = DATE(2014, 1, 6)
    guessed = terms_of(loaded(bars("CLZ4", day), bars("CLF5", day)), spec_for("CL"))
    assert expiries(guessed) == ["2014-11-20", "2014-12-19"]
    (finding,) = guessed.findings
    assert (finding.defect, finding.count) == ("symbol", 2)
    for fact in ("2 contract codes of CL", "CLZ4 is 2014-12", "ten years ahead", "definition"):
        assert fact in finding.text
    far = dataclasses.replace(loaded(bars("CLZ4", day)), definitions=(defined("CLZ4", DATE(2024, 11, 20)),))
    terms = terms_of(far, spec_for("CL"))
    assert expiries(terms) == ["2024-11-20"]
    assert date_of(terms.safe_day[0]) == DATE(2024, 11, 19)
    assert terms.findings == ()
    # Bars two weeks after the last day of CLZ4 of 2014 are those of the other one.
    assert expiries(terms_of(loaded(bars("CLZ4", day, DATE(2014, 12, 5))), spec_for("CL"))) == ["2024-11-20"]
    assert terms_of(loaded(bars("CLZ14", day)), spec_for("CL")).findings == ()


def test_tables_are_put_in_the_order_that_definitions_tell():
    """CLZ4 is of 2024 here, so it is no contract to begin with in January 2014, though its code comes first."""
    days = [DATE(2014, 1, day) for day in (6, 7, 8)]
    far, near = bars("CLZ4", *days), bars("CLG5", *days)
    data = dataclasses.replace(loaded(far, near), definitions=(defined("CLZ4", DATE(2024, 11, 20)),))
    ordered, terms = in_order_of_expiry(data, spec_for("CL"))
    assert [table.contract for table in ordered.tables] == ["CLG5", "CLZ4"]
    assert expiries(terms) == ["2015-01-20", "2024-11-20"]
    assert front_series(data, by_hand("CL")).contracts == ("CLG5",)
    plain = loaded(near, far, symbology="continuous")
    assert in_order_of_expiry(plain, spec_for("CL"))[0] is plain


def test_codes_that_name_no_month_have_no_dates():
    terms = terms_of(loaded(bars("ES.c.0#1", DATE(2024, 1, 5)), bars("E-mini", DATE(2024, 1, 5))), spec_for("ES"))
    assert expiries(terms) == ["", ""]
    assert terms.safe_day.tolist() == [NEVER, NEVER]
    assert terms.is_usual.all()
    assert not terms.is_scheduled.any()


def test_an_unknown_root_has_a_guessed_expiry_that_no_rule_caps():
    spec = spec_for("FGBX", tick=0.01, multiplier=1000.0)
    terms = terms_of(loaded(bars("FGBXH4", DATE(2024, 1, 5)), bars("FGBXM4", DATE(2024, 1, 5))), spec)
    assert expiries(terms) == ["2024-03-28", "2024-06-28"]
    assert terms.safe_day.tolist() == [NEVER, NEVER]
    assert "FGBX" in terms.findings[0].text


def test_day_numbers():
    assert day_number(EPOCH) == 0
    assert date_of(day_number(DATE(2024, 2, 29))) == DATE(2024, 2, 29)
