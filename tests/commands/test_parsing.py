import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from tidewalk.commands.parsing import from_text, gathered, parse
from tidewalk.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Inner:
    """Settings of a part."""

    layers: tuple[int, ...] = (2, 3)
    """Sizes."""
    share: float | None = None
    """A share."""
    kind: Literal["warm", "cold"] | None = None
    """A kind."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A command."""

    place: Annotated[Path, tyro.conf.Positional]
    """A place."""
    count: int
    """How many."""
    inner: Inner = dataclasses.field(default_factory=Inner)
    is_fast: bool = False
    """Hurry."""


def test_words_become_a_record():
    words = ["here", "--count", "-3", "--layers=4,5,6", "--share", "1e-3", "--kind", "cold", "--is-fast"]
    expected = Record(Path("here"), -3, Inner((4, 5, 6), 1e-3, "cold"), is_fast=True)
    assert parse(Record, "try", words) == expected
    assert parse(Record, "try", words[::-1][:1] + words[:-1]) == expected  # in any order


def test_a_default_record_stands_where_no_flag_is_given():
    default = Record(Path("there"), 3, Inner(share=0.5), is_fast=True)
    assert parse(Record, "try", ["here"], default=default) == dataclasses.replace(default, place=Path("here"))
    assert parse(Record, "try", ["here", "--share", "none", "--no-is-fast"], default=default) == Record(Path("here"), 3)


def test_the_last_of_several_values_counts():
    assert parse(Record, "try", ["here", "--count", "1", "--count", "2"]).count == 2


def test_help_shows_values_as_they_are_written(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(Record, "try", ["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "--layers INT,INT" in out
    assert "(default: 2,3)" in out
    assert "--kind {warm,cold}" in out
    assert "(default: none)" in out
    assert "None" not in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--count", "1"], "PLACE must be given"),
        (["here"], "--count must be given"),
        ([], "--count and PLACE must be given"),
        (["here", "there", "--count", "1"], "unexpected 'there'"),
        (["here", "--count"], "--count needs a value: a whole number"),
        (["here", "--count", "--is-fast"], "--count needs a value"),
        (["here", "--count", "x"], "--count is 'x'; it must be a whole number"),
        (["here", "--count=1", "--layers", "1,"], "--layers is '1,'"),
        (["here", "--count=1", "--kind", "cool"], r"one of warm, cold \(did you mean cold\?\)"),
        (["here", "--cuont=1"], r"unknown flag --cuont \(did you mean --count\?\)"),
        (["here", "--count=1", "--is-fast=1"], "--is-fast is a switch"),
    ],
)
def test_what_does_not_fit_is_named_once_and_shortly(words, says):
    with pytest.raises(ConfigError, match=says) as caught:
        parse(Record, "try", words)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("`tidewalk try --help` lists all options.")


@given(st.integers())
def test_whole_numbers_are_read_as_they_are_written(number):
    assert from_text(int, str(number)) == number
    assert from_text(int | None, str(number)) == number
    assert from_text(tuple[int, ...], f"{number},{number}") == (number, number)


@given(st.floats(allow_nan=False))
def test_numbers_are_read_as_they_are_written(number):
    assert from_text(float, str(number)) == number


@given(st.text())
def test_any_text_gives_a_value_or_a_reason(text):
    for hint in (int, float | None, Path, tuple[int, ...], Literal["a", "b"]):
        with contextlib.suppress(ValueError):
            value = from_text(hint, text)
            assert value is None or isinstance(value, int | float | Path | tuple | str)


def test_nothing_is_a_value_only_where_there_may_be_none():
    assert from_text(float | None, "none") is None
    with pytest.raises(ValueError, match="it must be a number"):
        from_text(float, "none")
    with pytest.raises(ValueError, match="it must be a path"):
        from_text(Path, "")


@pytest.mark.parametrize(
    ("words", "gathers"),
    [
        (["--a", "x", "--s", "1", "--b", "--s=2", "--s", "3"], ["--a", "x", "--b", "--s", "1,2,3"]),
        (["--s", "1", "--a"], ["--s", "1", "--a"]),
        (["--s", "1", "--s", "--a"], ["--s", "1", "--s", "--a"]),
        (["--s", "1", "--s"], ["--s", "1", "--s"]),
        ([], []),
    ],
)
def test_a_flag_given_several_times_is_gathered_and_a_broken_one_left_to_the_parser(words, gathers):
    assert gathered("--s", words) == gathers
