from tidewalk.commands import sample


def test_twelve_months_in_a_yearly_file(tmp_path, capsys):
    flags = ["--years", "1", "--files", "year", "--kind", "noise", "--volume", "0.02"]
    assert sample.run(["--out", str(tmp_path / "out"), *flags]) == 0
    said = capsys.readouterr()
    assert said.err == f"writing 12 months to {tmp_path / 'out'}\n"
    assert said.out.startswith("1 DBN file, ")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["es.fut_2022.ohlcv-1m.dbn.zst"]
