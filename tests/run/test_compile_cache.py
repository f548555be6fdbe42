"""Compiled programs kept between processes: what is run is what was compiled, from a folder nobody else writes."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import sys
import jax, jax.numpy as jnp
from tidewalk.run import compile_cache
folder = compile_cache.enable(sys.argv[1], print)
step = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ c) + jnp.sin(c), c.sum()), x, None, length=5))
total = float(step(jnp.eye(8) * 0.3)[1].sum())
compile_cache.seal()
found = compile_cache.requests()
print(found.asked, found.found, total)
"""


def in_a_process(cache: Path) -> tuple[int, int, float]:
    """Programs asked for, those found, and the result of one of them."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", CHILD, str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=True)
    asked, found, total = done.stdout.split()
    return int(asked), int(found), float(total)


def entries(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*-cache"))


def test_a_second_process_compiles_nothing_and_a_flipped_bit_is_compiled_again(tmp_path):
    asked, found, total = in_a_process(tmp_path)
    assert (asked > 0, found) == (True, 0)
    assert len(entries(tmp_path)) == len(list(tmp_path.rglob("*.seal"))) == asked
    assert all(
        stat.S_IMODE(path.stat().st_mode) == 0o700 for path in (tmp_path / "compiled", entries(tmp_path)[0].parent)
    )
    assert in_a_process(tmp_path) == (asked, asked, total)
    for entry in entries(tmp_path):  # a bit that may end the process, or change the result, where it is not found
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)
    assert in_a_process(tmp_path) == (asked, 0, total)
    assert in_a_process(tmp_path) == (asked, asked, total)


@pytest.fixture
def caching(monkeypatch):
    """The module, with jax as it is where nobody gave it a folder, and as it was afterwards."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache as of_jax

    from tidewalk.run import compile_cache

    names = [
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_persistent_cache_enable_xla_caches",
    ]
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.delenv("TIDEWALK_CACHE", raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield compile_cache
    for name, value in before.items():
        jax.config.update(name, value)
    of_jax.reset_cache()


@pytest.fixture
def said():
    return []


def test_off_keeps_nothing_by_flag_and_by_variable(caching, said, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.enable("off", said.append) is None
    monkeypatch.setenv("TIDEWALK_CACHE", "off")
    assert caching.enable(None, said.append) is None
    assert list(tmp_path.iterdir()) == said == []


def test_the_folder_lies_beside_the_markets_and_a_flag_wins_over_the_variable(caching, said, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.enable(None, said.append).parent == tmp_path / "tidewalk" / "compiled"
    monkeypatch.setenv("TIDEWALK_CACHE", str(tmp_path / "variable"))
    assert caching.enable(None, said.append).parent == tmp_path / "variable" / "compiled"
    assert caching.enable(str(tmp_path / "flag"), said.append).parent == tmp_path / "flag" / "compiled"
    assert said == []


def test_a_folder_that_was_given_to_jax_stays(caching, said, tmp_path):
    import jax

    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert caching.enable(str(tmp_path / "flag"), said.append) == tmp_path / "own"
    assert not (tmp_path / "flag").exists()


def refused(caching, said, cache: Path) -> str:
    import jax

    assert caching.enable(str(cache), said.append) is None
    assert jax.config.jax_compilation_cache_dir is None
    (line,) = said
    assert line.startswith("warning: compiled programs are not kept")
    return line


def test_a_link_in_the_place_of_the_folder_is_refused(caching, said, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "compiled").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(caching, said, tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(mode, caching, said, tmp_path):
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled").chmod(mode)
    assert "others may write to it" in refused(caching, said, tmp_path)


def test_a_folder_that_others_may_replace_is_refused_and_one_in_a_sticky_folder_is_not(caching, said, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert caching.enable(str(shared / "mine"), said.append) is not None
    caching.jax.config.update("jax_compilation_cache_dir", None)
    shared.chmod(0o777)
    assert "others may put another in its place" in refused(caching, said, shared / "mine")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(caching, said, tmp_path):
    (tmp_path / "compiled").mkdir()
    os.chown(tmp_path / "compiled", 12345, 12345)
    assert "it belongs to another user" in refused(caching, said, tmp_path)


def test_a_file_in_the_place_of_the_folder_is_told(caching, said, tmp_path):
    (tmp_path / "compiled").write_text("")
    assert refused(caching, said, tmp_path)


def sealed(caching, folder: Path, name: str, data: bytes) -> Path:
    entry = folder / f"{name}-cache"
    entry.write_bytes(caching.zstandard.ZstdCompressor().compress(data))
    caching.seal()
    assert (folder / f"{name}-cache.seal").exists()
    return entry


def test_entries_without_a_seal_or_other_than_sealed_or_links_go(caching, said, tmp_path):
    folder = caching.enable(str(tmp_path), said.append)
    names = ("kept", "changed", "linked")
    kept, changed, linked = (sealed(caching, folder, name, name.encode()) for name in names)
    changed.write_bytes(kept.read_bytes())
    linked.rename(tmp_path / "moved")
    linked.symlink_to(tmp_path / "moved")
    (folder / "unsealed-cache").write_bytes(b"x")
    (folder / "gone-cache.seal").write_text("x")
    caching.enable(str(tmp_path), said.append)
    assert sorted(path.name for path in folder.iterdir()) == ["kept-cache", "kept-cache.seal"]
    assert said == []


def test_an_entry_that_another_process_is_still_writing_is_not_sealed(caching, said, tmp_path):
    folder = caching.enable(str(tmp_path), said.append)
    whole = caching.zstandard.ZstdCompressor().compress(os.urandom(1000))
    (folder / "half-cache").write_bytes(whole[:500])
    caching.seal()
    assert not (folder / "half-cache.seal").exists()


def test_what_was_not_used_for_the_longest_time_goes_first(caching, said, tmp_path, monkeypatch):
    folder = caching.enable(str(tmp_path), said.append)
    now = time.time()
    for age, name in enumerate(("new", "old", "oldest")):
        entry = sealed(caching, folder, name, os.urandom(1000))
        os.utime(entry, (now - 100 * age, now - 100 * age))
    other = folder.with_name("jax-of-before")
    other.mkdir()
    (other / "ancient-cache").write_bytes(b"x" * 1000)
    os.utime(other / "ancient-cache", (0, 0))
    monkeypatch.setattr(caching, "LIMIT_BYTES", 2500)
    caching.enable(str(tmp_path), said.append)
    assert sorted(path.name for path in tmp_path.rglob("*-cache")) == ["new-cache", "old-cache"]
    assert sorted(path.name for path in tmp_path.rglob("*.seal")) == ["new-cache.seal", "old-cache.seal"]
