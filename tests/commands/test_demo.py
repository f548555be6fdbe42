import shlex
from pathlib import Path

import pytest

from tidewalk import cli
from tidewalk.commands import demo
from tidewalk.run import loop


@pytest.fixture
def studies(monkeypatch):
    """Studies that the demo would run."""
    seen = []
    monkeypatch.setattr(demo, "write_sample", lambda out, config: seen.append((out, config)))
    monkeypatch.setattr(loop, "train", lambda config: seen.append(config) or config.output.out)
    monkeypatch.setattr(demo, "print_result", lambda folder, **_: print(folder))
    return seen


def test_the_demo_replaces_its_own_folder_and_no_other(studies, capsys):
    assert cli.main(["demo"]) == 0
    assert studies[-1].output.overwrite
    assert cli.main(["demo", "--out", "runs/mine"]) == 0
    assert not studies[-1].output.overwrite
    assert cli.main(["demo", "--out", "runs/mine", "--overwrite"]) == 0
    assert studies[-1].output.overwrite
    assert capsys.readouterr().out == "runs/demo\nruns/mine\nruns/mine\n"


def test_markets_of_other_demos_do_not_mix(studies):
    for args in ([], ["--months", "12"], ["--seed", "1"]):
        cli.main(["demo", *args])
    folders = [config.data.data_dir for config in studies[1::2]]
    assert len(set(folders)) == 3
    assert folders == [out for out, _ in studies[::2]]


def test_the_sample_says_how_to_go_on(tmp_path, capsys):
    folder = tmp_path / "my sample"
    assert cli.main(["sample", "--out", str(folder), "--months", "1", "--kind", "noise"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"writing 1 month to {folder}\n"
    words = shlex.split(captured.out.splitlines()[-1])
    assert words[:3] == ["next:", "tidewalk", "train"]
    assert Path(words[words.index("--data-dir") + 1]) == folder
