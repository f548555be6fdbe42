import base64
import hashlib
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from plotly.offline import get_plotlyjs

from tidewalk.report import tables
from tidewalk.report.page import write_report
from tidewalk.report.shell import figure_json, in_currency
from tidewalk.store import layout, quality, results
from tidewalk.store.summary import FIGURES, read_summary, undefined_warning, write_summary

HOSTILE = "ES</script><script>alert(1)</script>|x\"'><img src=x onerror=1>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Elements, texts of scripts and the visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif not self._inside:
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text(encoding="utf-8"))


def unfinished(folder: Path, status: str) -> Path:
    """The run as it looks when it stops before its first test, or is killed while running."""
    run = layout.run_paths(folder)
    for path in (run.equity, run.fills, run.trades, run.members, run.cost_surface):
        path.unlink()
    head = read_summary(run)
    run.summary.unlink()
    if status != "running":
        warnings = [undefined_warning(name, f"the run is {status}") for name in FIGURES]
        facts = {"status": status, "per_symbol": [], "per_window": [], "warnings": warnings}
        write_summary(run, {**head, **dict.fromkeys(FIGURES), **facts})
    layout.write_manifest(run, {**layout.read_manifest(run), "status": status, "files": {}})
    return folder


def test_the_page_is_in_the_run_folder_and_the_same_files_give_the_same_bytes(make_run):
    folder = make_run()
    path = write_report(folder)
    first = path.read_bytes()
    assert path == folder / "report.html"
    assert write_report(folder).read_bytes() == first
    assert sorted(item.name for item in folder.iterdir() if item.name.endswith(".tmp")) == []


def test_every_section_has_its_figures(make_run):
    page = page_of(make_run())
    ids = [attrs["id"] for tag, attrs in page.elements if tag == "script" and "id" in attrs]
    boxes = [attrs["data-figure"] for _, attrs in page.elements if "data-figure" in attrs]
    assert (
        ids
        == boxes
        == [
            f"figure-{name}"
            for name in (
                *("equity", "seeds", "windows", "selection", "training", "phases", "waterfall", "sessions", "hours"),
                *("surface_0", "break_even"),
            )
        ]
    )
    for kind, text in page.scripts:
        if kind == "application/json":
            assert json.loads(text)["data"]
    for words in (
        "Verdict: not distinguishable from luck: best of 46 configurations, DSR 0.41.",
        "complete",
        "2025-01-03-dqn-es",
        "ES.FUT · dqn",
    ):
        assert words in page.words
    for words in (
        "How the figures are defined",
        "commission_usd = 2.25",
        "versions.jax",
        "3 calendar spreads were left out",
        "0.18 ticks of slippage",
        "volume",
    ):
        assert words in page.words


def test_plotly_is_embedded_once_and_nothing_is_fetched(make_run):
    folder = make_run()
    page = page_of(folder)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("plotly.js v") == 1
    rest = text.replace(get_plotlyjs(), "")
    assert "://" not in rest
    fetching = {"src", "srcset", "action", "formaction", "poster", "background", "data"}
    assert not [(tag, attrs) for tag, attrs in page.elements if fetching & attrs.keys()]
    links = [attrs["href"] or "" for _, attrs in page.elements if "href" in attrs]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.elements}
    assert "@import" not in rest
    assert "url(" not in rest


def test_only_the_two_known_scripts_may_run(make_run):
    page = page_of(make_run())
    meta = next(attrs for tag, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy")
    policy = dict(part.strip().split(" ", 1) for part in (meta["content"] or "").split(";"))
    running = [text for kind, text in page.scripts if kind == ""]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running]
    assert policy["default-src"] == "'none'"
    assert policy["script-src"].split() == [f"'sha256-{value}'" for value in hashes]
    assert len(running) == 2
    tags = [tag for tag, _ in page.elements]
    assert tags.index("meta") < tags.index("script")
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_b42_names_are_shown_literally_and_never_become_elements(make_run):
    plain = page_of(make_run())
    folder = make_run("hostile", name=HOSTILE, symbol=HOSTILE)
    (folder / "run.toml").write_text(f"note = '''{HOSTILE} <b>*markdown*</b>'''\n")
    page = page_of(folder)
    assert page.count("script") == plain.count("script")
    assert page.count("img") == page.count("b") == 0
    assert page.text.count(HOSTILE) >= 4
    assert page.count("td") == plain.count("td")
    assert page.count("th") == plain.count("th")


def test_b42_contracts_findings_and_warnings_are_shown_literally_too(make_run):
    """No name from the data becomes an element, wherever it comes from."""
    plain, folder = page_of(make_run("plain")), make_run()
    run = layout.open_run(folder)
    fills, trades = (
        read(run).with_columns(contract=pl.lit(HOSTILE)) for read in (results.read_fills, results.read_trades)
    )
    manifest = layout.read_manifest(run)
    told = {"notes": [HOSTILE], "warnings": [HOSTILE], "contracts": [HOSTILE]}
    layout.write_manifest(run, manifest | {"files": {}, "symbols": [of | told for of in manifest["symbols"]]})
    results.write_fills(run, fills)
    results.write_trades(run, trades)
    (of,) = quality.read_quality(run)["symbols"]
    finding = of["findings"][0] | {"defect": HOSTILE, "text": HOSTILE, "file": HOSTILE}
    quality.write_quality(run, [of | {"findings": [finding, *of["findings"][1:]]}])
    page = page_of(folder)
    assert page.count("script") == plain.count("script")
    assert page.count("img") == 0
    assert page.text.count(HOSTILE) >= 55
    assert [page.count(tag) for tag in ("table", "thead", "th")] == [
        plain.count(tag) for tag in ("table", "thead", "th")
    ]


def test_figures_cannot_leave_their_script_element():
    figure = go.Figure(go.Scatter(x=["</script>"], y=[float("nan")], text="<!--&\u2028"))
    text = figure_json(figure)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["data"][0]["x"] == ["</script>"]
    assert json.loads(text)["data"][0]["y"] == [None]
    assert figure_json(None) is None


def test_findings_on_the_data_come_warnings_first_and_files_follow(make_run):
    cells = page_of(make_run()).words
    assert cells.index("warningoff-tick2 bars are off the tick grid2") < cells.index("notespreads3 calendar")
    assert "spreads were left out412es-2018.dbn.zst" in cells
    assert "Files: 1 FileFormatSchema" in cells
    assert "es-2018.dbn.zstdbn v1 zstdohlcv-1m812,756812,3442018-01-01 23:00" in cells


def test_several_symbols_have_a_row_each_and_name_their_windows(make_run):
    folder = make_run(more_symbols=("NQ.FUT",), windows=3)
    page, one = page_of(folder), page_of(make_run("one", windows=3))
    assert "By symbol" in page.words
    assert "By symbol" not in one.words
    for words in ("ES.FUT, NQ.FUT · dqn", "6 windows", "5 NQ.FUT", "0 ES.FUT", "NQ.FUT: 2 bars are off the tick grid."):
        assert words in page.words
    for words in ("NQ.FUTwarningoff-tick", "NQ.FUT tick0.25", "NQ.FUT 4.50 USD per contract and side"):
        assert words in page.words
    run = layout.open_run(folder)
    net = {row["symbol"]: row["oos"]["net_usd"] for row in read_summary(run)["per_symbol"]}
    for symbol, value in net.items():
        assert f"{symbol}3" in page.words
        assert tables.usd(value) in page.words
    figures = [attrs["data-figure"] for _, attrs in page.elements if "data-figure" in attrs]
    assert figures[:4] == ["figure-equity", "figure-symbols", "figure-seeds", "figure-windows"]
    assert {"figure-surface_0", "figure-surface_1"} < set(figures)


def test_b39_a_policy_that_is_a_baseline_is_named_at_the_top(make_run):
    twin, other = page_of(make_run(equals=("long", "tsmom"))), page_of(make_run("other"))
    says = "The policy equals buy-and-hold on 100 % of bars: it is that baseline, not a learned strategy."
    assert twin.words.index(says) < twin.words.index("Net, out of sample")
    assert "The policy equals time-series momentum on 100 % of bars" in twin.words
    assert "equals" not in other.words
    assert "The nearest baseline is last-move momentum: the same position on 41.0 % of bars." in other.words


@pytest.mark.parametrize("status", ["interrupted", "failed", "running"])
def test_an_unfinished_run_shows_what_there_is(make_run, status):
    page = page_of(unfinished(make_run(), status))
    assert f"This run is {status}." in page.words
    assert "equity.parquet, fills.parquet, trades.parquet, members.parquet, cost_surface.parquet." in page.words
    assert "is undefined" not in page.words
    assert page.words.startswith("ES.FUT")
    assert "2018-05-01 to 2018-05-31" in page.words
    assert "No test window has been evaluated yet." in page.words
    assert "No fill is recorded." in page.words
    boxes = [attrs["data-figure"] for _, attrs in page.elements if "data-figure" in attrs]
    assert boxes == ["figure-training", "figure-phases"]


def test_a_run_that_only_began(tmp_path):
    run = layout.create_run(tmp_path / "fresh", overwrite=False)
    page = page_of(run.root)
    assert "No windows are recorded." in page.words
    assert "No epoch has reported a loss or a validation result." in page.words
    assert not [attrs for _, attrs in page.elements if "data-figure" in attrs]


def test_one_window_one_epoch_no_trades_no_losses(make_run):
    page = page_of(make_run(windows=1, epochs=1, seeds=1, trades=False, losses=False, phased=False))
    assert "The ensemble made no trade." in page.words
    assert "Figures without a value: 24" in page.words
    assert page.text.count("undefined") >= 4
    assert "nan" not in page.text.lower().split()
    boxes = [attrs["data-figure"] for _, attrs in page.elements if "data-figure" in attrs]
    assert boxes == ["figure-equity", "figure-windows", "figure-training", "figure-phases"]


def test_thousands_of_sessions_stay_below_seven_megabytes(make_run):
    path = write_report(make_run(windows=150, seeds=16, epochs=60, step_months=1))
    assert path.stat().st_size < 7_000_000


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("name", ["ES.FUT", HOSTILE])
def test_a_browser_draws_every_figure_and_runs_nothing_else(make_run, tmp_path, name):
    path = write_report(make_run(name=name, symbol=name))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    flags += ["--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1400,4000"]
    command = [str(CHROMIUM), *flags, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    page = Page(done.stdout)
    figures = [attrs for _, attrs in page.elements if "data-figure" in attrs]
    assert len(figures) == 11
    assert done.stdout.count('class="main-svg"') >= len(figures)
    assert done.stdout.count('class="cartesianlayer"') >= len(figures)
    assert page.count("script") == len(figures) + 2
    assert page.count("img") == 0


def test_money_is_labelled_in_the_currency_of_the_study(make_run):
    folder = make_run()
    run = layout.open_run(folder)
    write_summary(run, {**read_summary(run), "currency": "EUR"})
    text = write_report(folder).read_text(encoding="utf-8")
    page = page_of(folder)
    figures = " ".join(content for kind, content in page.scripts if kind == "application/json")
    assert "EUR after all costs" in page.words
    assert "net P&L, EUR" in figures.replace("\\u0026", "&")
    assert "\u00a4" not in text
    assert "\\u00a4" not in text
    hostile = in_currency("net, \u00a4", HOSTILE)
    assert "<" not in hostile
    assert '"' not in hostile
