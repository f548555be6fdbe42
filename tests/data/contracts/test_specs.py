import dataclasses
import datetime

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewalk.core.errors import ConfigError
from tidewalk.data.calendar.sessions import RULES
from tidewalk.data.contracts.specs import (
    KNOWN_ROOTS,
    MONTH_CODES,
    ContractMonth,
    parse_contract,
    root_of,
    spec_for,
)

DATE = datetime.date


@pytest.mark.parametrize(
    ("root", "tick_e9", "multiplier", "tick_value_usd", "commission_usd"),
    [
        # CME Group contract specifications; commissions as documented beside the table.
        ("ES", 250_000_000, 50.0, 12.5, 2.25),
        ("NQ", 250_000_000, 20.0, 5.0, 2.25),
        ("RTY", 100_000_000, 50.0, 5.0, 2.25),
        ("YM", 1_000_000_000, 5.0, 5.0, 2.25),
        ("MES", 250_000_000, 5.0, 1.25, 0.62),
        ("MNQ", 250_000_000, 2.0, 0.5, 0.62),
        ("M2K", 100_000_000, 5.0, 0.5, 0.62),
        ("MYM", 1_000_000_000, 0.5, 0.5, 0.62),
        ("CL", 10_000_000, 1000.0, 10.0, 2.47),
        ("MCL", 10_000_000, 100.0, 1.0, 0.62),
        ("GC", 100_000_000, 100.0, 10.0, 2.47),
        ("MGC", 100_000_000, 10.0, 1.0, 0.62),
        ("ZN", 15_625_000, 1000.0, 15.625, 2.47),
        ("ZB", 31_250_000, 1000.0, 31.25, 2.47),
        ("6E", 50_000, 125_000.0, 6.25, 2.47),
        ("BTC", 5_000_000_000, 5.0, 25.0, 11.02),
        ("MBT", 5_000_000_000, 0.1, 0.5, 4.77),
    ],
)
def test_known_specs(root, tick_e9, multiplier, tick_value_usd, commission_usd):
    spec = spec_for(root)
    assert (spec.tick_e9, spec.multiplier, spec.tick_value_usd) == (tick_e9, multiplier, tick_value_usd)
    assert spec.commission_usd == commission_usd
    assert spec.currency == "USD"


def test_specs_agree_with_an_independent_table(shared_data):
    """LEAN gives farm products in dollars; `price_magnifier` says by how much the exchange's quotes are larger."""
    table = polars.read_csv(
        shared_data / "reference" / "lean_symbol_properties_futures.csv", infer_schema=False, truncate_ragged_lines=True
    )
    exchanges = ["cme", "cbot", "nymex", "comex", "cfe", "eurex"]
    rows = {row["symbol"]: row for row in table.filter(polars.col("market").is_in(exchanges)).to_dicts()}
    compared = [spec for spec in map(spec_for, KNOWN_ROOTS) if spec.root in rows]
    assert {spec.root for spec in map(spec_for, KNOWN_ROOTS)} - {spec.root for spec in compared} == {"SR3"}
    for spec in compared:
        row = rows[spec.root]
        magnifier = float(row["price_magnifier"] or 1)
        assert spec.multiplier == float(row["contract_multiplier"]) / magnifier, spec.root
        assert spec.tick_e9 == round(float(row["minimum_price_variation"]) * magnifier * 1e9), spec.root
        assert spec.exchange.lower() == row["market"], spec.root
        assert spec.currency == row["quote_currency"], spec.root


def test_every_known_root_has_a_session_rule_and_usual_months():
    for spec in map(spec_for, KNOWN_ROOTS):
        assert spec.sessions in RULES, spec.root
        assert spec.months, spec.root
        assert set(spec.months) <= set(MONTH_CODES), spec.root
        assert spec.group, spec.root


def test_overrides_replace_one_value_each():
    plain = spec_for("ES")
    assert spec_for("ES", tick=0.05) == dataclasses.replace(plain, tick_e9=50_000_000)
    assert spec_for("ES", multiplier=500) == dataclasses.replace(plain, multiplier=500.0)
    assert spec_for("ES", commission_usd=0.0) == dataclasses.replace(plain, commission_usd=0.0)
    assert spec_for("ES").commission_usd > 0.0


def test_unknown_root_with_tick_and_multiplier_trades_utc_days():
    spec = spec_for("FGBX", tick=0.5, multiplier=25)
    assert (spec.tick_e9, spec.tick_value_usd, spec.sessions, spec.currency) == (500_000_000, 12.5, "utc-day", "USD")


@pytest.mark.parametrize("given_values", [{}, {"tick": 0.25}, {"multiplier": 50.0}])
def test_unknown_root_names_the_flags_and_the_nearest_root(given_values):
    with pytest.raises(ConfigError) as caught:
        spec_for("MNQQ", **given_values)
    for fact in ("'MNQQ'", "did you mean MNQ?", "--tick", "--multiplier", "ES", "6E"):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"tick": 0.0}, "--tick 0.0"),
        ({"tick": -0.25}, "--tick -0.25"),
        ({"tick": 1e-10}, "--tick 1e-10"),
        ({"tick": 1 / 3}, "--tick 0.333"),
        ({"tick": float("nan")}, "--tick nan"),
        ({"multiplier": 0.0}, "--multiplier 0.0"),
        ({"multiplier": float("inf")}, "--multiplier inf"),
        ({"commission_usd": -1.0}, "--commission-usd -1.0"),
    ],
)
def test_unusable_values_are_refused_by_flag(values, flag):
    with pytest.raises(ConfigError, match="not usable") as caught:
        spec_for("ES", **values)
    assert str(caught.value).startswith(flag)


def test_decimal_ticks_are_exact_integers():
    ticks = {
        0.1: 10**8,
        0.05: 5 * 10**7,
        0.00005: 50_000,
        1 / 64: 15_625_000,
        1 / 256: 3_906_250,
        5e-7: 500,
        5: 5 * 10**9,
    }
    for tick, tick_e9 in ticks.items():
        assert spec_for("ES", tick=tick).tick_e9 == tick_e9


@pytest.mark.parametrize(
    ("symbol", "root"),
    [
        ("ES.FUT", "ES"),
        ("ESZ4", "ES"),
        ("ESZ24", "ES"),
        ("ESZ2024", "ES"),
        ("ES.c.0", "ES"),
        ("ES.c.0#4916", "ES"),
        ("NQ", "NQ"),
        ("6E.FUT", "6E"),
        ("6EH4", "6E"),
        ("BTC", "BTC"),
        ("BTCF6", "BTC"),
        ("M2KZ4", "M2K"),
        ("MNQH4", "MNQ"),
        ("NQH4", "NQ"),
        ("ZNM5", "ZN"),
        ("es.fut", "es"),
        ("FU2305", "FU"),
        ("RB2305", "RB-CN"),  # steel in Shanghai; RB is gasoline
        ("RU2009", "RU"),
        ("MA305", "MA"),
        ("rb2305", "rb"),
        ("m2305", "m"),
        ("ESU2009", "ES"),
        ("ESZ3-ESH4", "ESZ3-ESH4"),
        ("ES2405X", "ES2405X"),
    ],
)
def test_root_of_every_symbol_form(symbol, root):
    assert root_of(symbol) == root


@pytest.mark.parametrize(
    ("code", "on", "year", "month"),
    [
        ("ESZ4", DATE(2013, 10, 7), 2014, 12),
        ("ESZ4", DATE(2014, 12, 31), 2014, 12),
        ("ESZ4", DATE(2015, 1, 5), 2014, 12),  # just expired
        ("ESZ4", DATE(2015, 2, 2), 2024, 12),
        ("ESZ4", DATE(2024, 11, 1), 2024, 12),
        ("ESH0", DATE(2020, 1, 6), 2020, 3),
        ("ESH0", DATE(2019, 12, 31), 2020, 3),
        ("ESU3", DATE(2023, 8, 1), 2023, 9),
        ("ESU3", DATE(2023, 10, 2), 2023, 9),
        ("ESH8", DATE(2023, 8, 1), 2028, 3),
        ("CLF5", DATE(2014, 12, 10), 2015, 1),
        ("ESZ24", DATE(2014, 1, 1), 2024, 12),
        ("ESZ98", DATE(2001, 1, 1), 1998, 12),
        ("ESZ2024", DATE(2014, 1, 1), 2024, 12),
        ("FU2305", DATE(2023, 3, 8), 2023, 5),
        ("RU2009", DATE(2020, 3, 8), 2020, 9),
        ("MA305", DATE(2023, 3, 8), 2023, 5),
        ("MA305", DATE(2023, 7, 3), 2033, 5),
    ],
)
def test_delivery_month_of_a_code(code, on, year, month):
    assert parse_contract(code, on) == ContractMonth(root_of(code), year, month)


@pytest.mark.parametrize(
    "code",
    [
        "ESZ3-ESH4",
        "ES:BF H4-M4-U4",
        "UD:1V: GN 2301",
        "ES",
        "ES.c.0",
        "ESH1 C3000",
        "",
        "M2K",
        "ESY4",
        "esz4",
        "AAPL",
        "ESZ2304",
        "FU2313",
        "FU2300",
        "ES:DF Z3-H4",
        "ESH4-ESM4",
        "UD:U$: VT 0630923",
    ],
)
def test_anything_but_an_outright_has_no_delivery_month(code):
    assert parse_contract(code, DATE(2024, 1, 2)) is None


@settings(deadline=None)  # the machine may be busy
@given(st.dates(DATE(2001, 1, 1), DATE(2060, 1, 1)), st.integers(-1, 107))
def test_one_digit_names_the_month_that_was_meant(on, months_ahead):
    year, month = divmod(on.year * 12 + on.month - 1 + months_ahead, 12)
    meant = ContractMonth("CL", year, month + 1)
    assert parse_contract(f"CL{MONTH_CODES[month]}{year % 10}", on) == meant
