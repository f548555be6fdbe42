import pytest

from tidewalk.core.errors import (
    BooksError,
    ConfigError,
    DataError,
    Interrupted,
    StoreError,
    TrainError,
    did_you_mean,
    listed,
    nearest,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError, 2), (DataError, 2), (StoreError, 2), (TrainError, 3), (Interrupted, 75), (BooksError, 1)],
)
def test_every_error_carries_the_exit_code_of_the_command_line(error, code):
    assert error("text").exit_code == code


def test_nearest_ignores_case_and_gives_none_when_nothing_is_close():
    assert nearest("es.fut", ["ES.FUT", "NQ.FUT"]) == "ES.FUT"
    assert nearest("ESZ24", ["ESZ4", "ESH5", "CLF5"]) == "ESZ4"
    assert nearest("zzz", ["ES.FUT"]) is None
    assert did_you_mean("trian", ["train", "report"]) == " (did you mean train?)"
    assert did_you_mean("zzz", ["train"]) == ""


@pytest.mark.parametrize(
    ("names", "most", "what", "text"),
    [
        ([], 2, "", ""),
        (["a", "b"], 2, "files", "a, b"),
        (["a", "b", "c"], 2, "", "a, b and 1 more"),
        (["a", "b", "c", "d"], 2, "files", "a, b and 2 more files"),
    ],
)
def test_long_lists_are_cut_and_counted(names, most, what, text):
    assert listed(names, most, what) == text
