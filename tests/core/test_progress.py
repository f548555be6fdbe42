from tidewalk.core.progress import counted, part, silent


def test_the_share_follows_the_sizes_of_what_is_done():
    told = []
    items = counted(lambda what, share: told.append((what, share)), "file", iter("abc"), [10, 30, 60])
    assert next(items) == "a"
    assert told == [("file 1 of 3", 0.0)]
    assert list(items) == ["b", "c"]
    assert told[-1] == ("file 3 of 3", 1.0)
    assert [share for _, share in told] == [0.0, 0.1, 0.1, 0.4, 0.4, 1.0]


def test_empty_files_are_no_division_by_zero():
    assert list(counted(silent, "file", ["a"], [0])) == ["a"]
    assert list(counted(silent, "file", [], [])) == []


def test_a_part_fills_its_place_in_the_whole():
    told = []
    inner = part(part(lambda _, share: told.append(share), 0.5, 1.0), 0.0, 0.5)
    for share in (0.0, 0.5, 1.0):
        inner("x", share)
    assert told == [0.5, 0.625, 0.75]
