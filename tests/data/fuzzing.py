"""Market files of every format, and the ways in which bytes go wrong.

Each case is a small valid file. A mutation damages the file as it lies on disk, or what is inside its container, which
is then packed again so that no checksum helps the reader. What comes of it is a table that passes every check of
`bars.validate`, or a `TidewalkError`; where the content is the original's the result is the original's too.
"""

import gzip
import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import zstandard

from data.market_files import DAY_NS, MINUTE_NS, START, bar, csv_text, dbn, header, records, zst
from tidewalk.core.errors import TidewalkError
from tidewalk.data.bars import Loaded, validate
from tidewalk.data.dbn.layouts import LAYOUTS
from tidewalk.data.load import DataConfig, load_bars

BARS = [bar(100 + 100 * (i % 2), START + i // 2 * MINUTE_NS, 4800 + i % 9 / 4) for i in range(120)]
FOREVER = START + 40 * DAY_NS


@dataclass(frozen=True)
class Case:
    """A valid file.

    Attributes:
        name: format, for the count of outcomes.
        suffix: end of the file's name.
        inner: content without container.
        pack: puts content into the container.
        unpack: takes it out again, independently of the reader under test; raises on damage.
        options: flags for `DataConfig`.
    """

    name: str
    suffix: str
    inner: bytes
    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes], bytes]
    options: dict[str, str]

    @property
    def has_plain_bars(self) -> bool:
        """Whether the content is a DBN file of bars and of nothing else."""
        return self.inner[:3] == b"DBN" and "bars" not in self.options and "live" not in self.name


def _zip(content: bytes, name: str = "es.csv") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def _unzip(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(archive.namelist()[0])


def _unzst(content: bytes) -> bytes:
    out = b""
    while content:
        if content[1:4] == b"\x2a\x4d\x18":
            content = content[8 + struct.unpack("<I", content[4:8])[0] :]
            continue
        frame = zstandard.ZstdDecompressor().decompressobj()
        out += frame.decompress(content)
        if not frame.eof:
            raise EOFError
        content = frame.unused_data
    return out


def _same(content: bytes) -> bytes:
    return content


def _ticks(schema: str) -> bytes:
    rows = np.zeros(200, LAYOUTS[schema])
    rows["length"] = rows.dtype.itemsize // 4
    rows["rtype"] = {"trades": 0, "mbp-1": 1, "bbo-1s": 0xC3}[schema]
    rows["instrument_id"] = 100
    rows["ts_event"] = rows["ts_recv"] = START + np.arange(200) * 7 * 10**9
    rows["price"] = (19_200 + np.arange(200) % 11) * 250_000_000
    rows["size"] = 1 + np.arange(200) % 5
    if "action" in (rows.dtype.names or ()):
        rows["action"], rows["side"] = b"T", b"A"
    if schema != "trades":
        rows["bid_px_00"], rows["ask_px_00"] = rows["price"] - 250_000_000, rows["price"] + 250_000_000
        rows["bid_sz_00"] = rows["ask_sz_00"] = 9
    return header(schema=schema, end=FOREVER) + rows.tobytes()


def _live() -> bytes:
    layout = LAYOUTS["symbol mapping"]
    named = np.zeros(2, layout)
    named["length"], named["rtype"], named["ts_event"] = layout.itemsize // 4, 0x16, START
    named["instrument_id"], named["stype_in_symbol"], named["stype_out_symbol"] = (
        [100, 200],
        b"ES.FUT",
        [b"ESH4", b"ESM4"],
    )
    named["start_ts"] = named["end_ts"] = 2**64 - 1
    return header([], None, stype_in=None, symbols=[]) + named.tobytes() + records(BARS).tobytes()


def _table() -> pl.DataFrame:
    stamps = [START + i * MINUTE_NS for i in range(60)]
    prices = [4800 + i % 9 / 4 for i in range(60)]
    return pl.DataFrame(
        {
            "ts_event": pl.Series(stamps, dtype=pl.Int64).cast(pl.Datetime("ns", "UTC")),
            "open": prices,
            "high": [price + 1 for price in prices],
            "low": [price - 1 for price in prices],
            "close": prices,
            "volume": list(range(60)),
        }
    )


def _parquet() -> bytes:
    buffer = io.BytesIO()
    _table().write_parquet(buffer)
    return buffer.getvalue()


def _feather() -> bytes:
    buffer = io.BytesIO()
    _table().write_ipc(buffer)
    return buffer.getvalue()


def _texts() -> dict[str, tuple[str, dict[str, str]]]:
    rows = [line.split(",") for line in csv_text(60, zone="").splitlines()[1:]]
    days = [(*row[0].split(" "), *row[1:]) for row in rows]
    dated = [(f"{day[5:7]}/{day[8:10]}/{day[:4]}", time, *rest) for day, time, *rest in days]
    packed = [(f"{day.replace('-', '')} {time.replace(':', '')}", *rest) for day, time, *rest in days]
    epoch = [(str((START + i * MINUTE_NS) // 10**9), *row[1:]) for i, row in enumerate(rows)]
    zone = {"tz": "America/Chicago"}
    return {
        "csv": (csv_text(60), {}),
        "csv quoted": (
            "\n".join(",".join(f'"{field}"' for field in line.split(",")) for line in csv_text(60).split("\n")[:-1]),
            {},
        ),
        "csv semicolon": (csv_text(60, zone="").replace(",", ";"), zone),
        "csv decimal comma": (csv_text(60, zone="").replace(",", ";").replace(".", ","), zone),
        "csv kibot": ("\n".join(",".join(row) for row in dated) + "\n", {**zone, "dialect": "kibot"}),
        "csv ninjatrader": ("\n".join(";".join(row) for row in packed) + "\n", {"dialect": "ninjatrader"}),
        "csv epoch": ("time,open,high,low,close,Volume\n" + "\n".join(",".join(row) for row in epoch) + "\n", {}),
        "csv metatrader": (
            "<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<VOL>\n"
            + "\n".join("\t".join((day.replace("-", "."), *rest)) for day, *rest in days)
            + "\n",
            zone,
        ),
        "csv barchart": (
            "Symbol,Time,Open,High,Low,Last,Volume\n"
            + "\n".join(",".join(("ESH4", *row)) for row in reversed(rows))
            + "\nDownloaded from Barchart.com\n",
            zone,
        ),
    }


def cases() -> list[Case]:
    """All valid files."""
    parent = {"symbol": "ES.FUT"}
    plain = {f"dbn v{version}": dbn(BARS, version=version, end=FOREVER) for version in (1, 2, 3)}
    found = [Case(name, ".dbn", content, _same, _same, parent) for name, content in plain.items()]
    content = plain["dbn v3"]
    found += [
        Case("dbn zst", ".dbn.zst", content, lambda c: zst(c, frames=3), _unzst, parent),
        Case("dbn zst v1", ".dbn.zst", plain["dbn v1"], zst, _unzst, parent),
        Case("dbn gz", ".dbn.gz", content, lambda c: gzip.compress(c, 1), gzip.decompress, parent),
        Case("dbn zip", ".zip", content, lambda c: _zip(zst(c), "es.dbn.zst"), lambda c: _unzst(_unzip(c)), parent),
        Case("dbn trades", ".dbn", _ticks("trades"), _same, _same, {**parent, "bars": "1m"}),
        Case("dbn mbp-1", ".dbn.zst", _ticks("mbp-1"), zst, _unzst, {**parent, "bars": "1m"}),
        Case("dbn bbo-1s", ".dbn.zst", _ticks("bbo-1s"), zst, _unzst, {**parent, "bars": "1m"}),
        Case("dbn live", ".dbn", _live(), _same, _same, parent),
        Case("parquet", ".parquet", _parquet(), _same, _same, {"symbol": "ES"}),
        Case("feather", ".feather", _feather(), _same, _same, {"symbol": "ES"}),
    ]
    for name, (text, options) in _texts().items():
        found.append(Case(name, ".csv", text.encode(), _same, _same, {"symbol": "ES", **options}))
    text = csv_text(60).encode()
    found += [
        Case("csv gz", ".csv.gz", text, lambda c: gzip.compress(c, 1), gzip.decompress, {"symbol": "ES"}),
        Case("csv zst", ".csv.zst", text, zst, _unzst, {"symbol": "ES"}),
        Case("csv zip", ".zip", text, _zip, _unzip, {"symbol": "ES"}),
    ]
    return found


NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)
WORDS = (
    b"nan",
    b"1e308",
    b"-1e400",
    b"9" * 40,
    b'"',
    b"\0",
    b"\xff\xfe",
    b"\r",
    b"-",
    b"",
    b"0",
    b"\n\n",
    b",,,,",
    b"inf",
    b"1.5.7",
)


def _flip(data: bytearray, draw: np.random.Generator) -> bytearray:
    for place in draw.integers(len(data), size=draw.integers(1, 9)):
        data[place] ^= 1 << int(draw.integers(8))
    return data


def _run(data: bytearray, draw: np.random.Generator) -> bytearray:
    place, size = int(draw.integers(len(data))), int(draw.integers(1, 64))
    fill = [bytes(size), b"\xff" * size, draw.bytes(size)][int(draw.integers(3))]
    data[place : place + size] = fill[: len(data) - place]
    return data


def _cut(data: bytearray, draw: np.random.Generator) -> bytearray:
    return data[: int(draw.integers(len(data)))]


def _insert(data: bytearray, draw: np.random.Generator) -> bytearray:
    place = int(draw.integers(len(data) + 1))
    data[place:place] = draw.bytes(int(draw.integers(1, 64)))
    return data


def _repeat(data: bytearray, draw: np.random.Generator) -> bytearray:
    start, stop, place = sorted(map(int, draw.integers(len(data), size=3)))
    data[place:place] = data[start:stop]
    return data


def _drop(data: bytearray, draw: np.random.Generator) -> bytearray:
    start, stop = sorted(map(int, draw.integers(len(data), size=2)))
    del data[start : min(stop, start + 200)]
    return data


def _number(data: bytearray, draw: np.random.Generator) -> bytearray:
    """A length, count or price of any size, more often near the start where headers lie."""
    size = (1, 2, 4, 8)[int(draw.integers(4))]
    near = min(len(data), 700 if draw.integers(2) else len(data))
    place = int(draw.integers(max(near - size, 1)))
    data[place : place + size] = (NUMBERS[int(draw.integers(len(NUMBERS)))] & (1 << 8 * size) - 1).to_bytes(
        size, "little"
    )
    return data


def _word(data: bytearray, draw: np.random.Generator) -> bytearray:
    """A field of text replaced."""
    place = int(draw.integers(len(data)))
    stop = min(len(data), place + int(draw.integers(12)))
    data[place:stop] = WORDS[int(draw.integers(len(WORDS)))]
    return data


def _digit(data: bytearray, draw: np.random.Generator) -> bytearray:
    """The smallest damage: one digit another one, or one byte of a number."""
    digits = [place for place, value in enumerate(data) if 0x30 <= value <= 0x39]
    place = digits[int(draw.integers(len(digits)))] if digits else int(draw.integers(len(data)))
    data[place] = 0x30 + int(draw.integers(10))
    return data


MUTATIONS = (_flip, _run, _cut, _insert, _repeat, _drop, _number, _number, _word, _digit, _digit, _digit)


def mutated(case: Case, other: Case, draw: np.random.Generator) -> bytes:
    """The file of a case with one to three things wrong."""
    inside = bool(draw.integers(2)) and case.pack is not _same
    data = bytearray(case.inner if inside else case.pack(case.inner))
    for _ in range(min(int(draw.geometric(0.7)), 4)):
        if not data:
            break
        data = MUTATIONS[int(draw.integers(len(MUTATIONS)))](data, draw)
    if draw.integers(12) == 0:
        tail = other.inner if inside else other.pack(other.inner)
        data = data[: int(draw.integers(len(data) + 1))] + tail[int(draw.integers(len(tail))) :]
    return case.pack(bytes(data)) if inside else bytes(data)


def read(path: Path, case: Case, *, is_lenient: bool = False) -> Loaded:
    """What a file or a folder gives, every table of it checked."""
    config = DataConfig(data_dir=path, **case.options)
    if is_lenient:
        config = replace(config, allow_truncated=True, on_bad_bar="drop", on_conflict="later")
    loaded = load_bars(config)
    for table in loaded.tables:
        validate(table)
    return loaded


def inside(content: bytes, case: Case) -> bytes | None:
    """What a reader that knows nothing of ours finds in the container; None for nothing."""
    try:
        return case.unpack(content)
    except (ValueError, EOFError, OSError, LookupError, RuntimeError, NotImplementedError, zlib.error, struct.error):
        return None
    except (zipfile.BadZipFile, zstandard.ZstdError):
        return None


def invented(loaded: Loaded, content: bytes) -> int:
    """Bars of a DBN file that none of its records holds, found by the plainest reading there is."""
    start = 8 + struct.unpack_from("<I", content, 4)[0]
    fields = ("ts_event", "open", "high", "low", "close")
    records = np.frombuffer(content, LAYOUTS["ohlcv-1m"], (len(content) - start) // 56, start)
    held = set(zip(*(records[name].tolist() for name in fields), strict=True))
    found = 0
    for table in loaded.tables:
        columns = (table.ts_ns, table.open_e9, table.high_e9, table.low_e9, table.close_e9)
        found += len(set(zip(*(column.tolist() for column in columns), strict=True)) - held)
    return found


def outcome(folder: Path, case: Case, content: bytes, truth: str, way: int = 0) -> str:
    """What comes of a mutated file: "refused", "loaded", "loaded, the original's", or what must not be.

    The last is "changed", other bars from the original content, or the name of an error that is no refusal.

    Args:
        folder: where files may be written.
        case: of which the file was.
        content: the mutated file.
        truth: fingerprint of the original.
        way: 0 to 3: read as a file or, when odd, as the only one of a folder; from 2 on with every defect allowed that
            a flag allows.
    """
    path = folder / case.name / f"ES{case.suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    try:
        loaded = read(path.parent if way % 2 else path, case, is_lenient=way >= 2)
    except TidewalkError as error:
        return "refused" if str(error) else "an error without words"
    except BaseException as error:  # a panic of a library in Rust is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}"
    if loaded.fingerprint == truth:
        return "loaded, the original's"
    found = inside(content, case)
    if found is not None and case.has_plain_bars and invented(loaded, found):
        return "bars that the file does not hold"
    return "changed" if found == case.inner else "loaded"


GOOD = ("refused", "loaded", "loaded, the original's")


def fuzz(folder: Path, rounds: int, seed: int) -> tuple[Counter[tuple[str, str]], list[tuple[str, int, str]]]:
    """Outcomes of mutated files, the cases in turn: counts by case, and those that must not be (case, round, what)."""
    everything = cases()
    truths = {}
    for case in everything:
        path = folder / f"ES{case.suffix}"
        path.write_bytes(case.pack(case.inner))
        truths[case.name] = read(path, case).fingerprint
    counts: Counter[tuple[str, str]] = Counter()
    bad = []
    for number in range(rounds):
        case, draw = everything[number % len(everything)], np.random.default_rng([seed, number])
        other = everything[int(draw.integers(len(everything)))]
        found = outcome(folder, case, mutated(case, other, draw), truths[case.name], way=int(draw.integers(4)))
        counts[case.name, found if found in GOOD else "other"] += 1
        if found not in GOOD:
            bad.append((case.name, number, found))
    return counts, bad
