"""The page in a real Chromium: what a reader clicks, links, reads, copies and hears.

Skipped where there is no Chromium (Debian's package `chromium`; PLENCH_CHROMIUM names another) or no
Playwright.
"""

import csv
import io
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from statistics import fmean

import pytest

from plench.criteria import criteria
from plench.report.leaderboard import rank_values
from plench.report.statistics import compare_algorithms, compare_each_pair
from plench.report.tables import build_tables, escape_latex, escape_markdown
from plench.text import guard_formula
from tests.report.conftest import find_serious, read_board, records, write_page
from tests.report.site_sweep import CLASSICAL, MARKUP, UNLABELLED, write_benchmark
from tests.synthetic_sweep import ALGORITHMS, experiment_of, write_run, write_sweep

pytestmark = pytest.mark.real

BOARD = ".board > .scroll table"
PAGES = {
    "leaderboard": "#/leaderboard",
    "ranks": "#/leaderboard?show=rank&criterion=AA",
    "cell": "#/cell?algorithm=CC&dataset=Lost&criterion=CR",
    "diverged": "#/cell?algorithm=EXP&dataset=Lost&criterion=OA",
    "compare": "#/compare?a=POP&b=CC",
    "criteria": "#/criteria",
    "datasets": "#/datasets",
    "dataset": "#/dataset?name=Lost",
    "unlabelled": f"#/dataset?name={UNLABELLED}",
    "algorithms": "#/algorithms",
    "algorithm": "#/algorithm?name=LWS",
    "markup": "#/algorithm?name=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "provenance": "#/provenance",
    "nowhere": "#/nowhere",
}


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    """All algorithms of the package on three datasets and one without true labels."""
    return write_benchmark(tmp_path_factory.mktemp("page") / "runs")


@pytest.fixture(scope="module")
def board(runs_folder):
    return read_board(runs_folder)


@pytest.fixture(scope="module")
def site(runs_folder):
    return write_page(runs_folder)


class Reader:
    """A tab with the site open, which fails at the end if anything was wrong on the way."""

    def __init__(self, browser, base, **options):
        self.base = base
        self.context = browser.new_context(viewport={"width": 1360, "height": 900}, **options)
        self.page = self.context.new_page()
        self.wrong, self.requests = [], []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def hear(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def open(self, address="#/leaderboard"):
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/index.html{address}")
        return self.settle()

    def settle(self):
        self.page.wait_for_selector("h1")
        self.page.wait_for_selector("[aria-busy=true]", state="detached")
        return self.page

    def rows(self, table="main table"):
        """Return the first table's rows as lists of visible text, marks included."""
        return self.page.eval_on_selector_all(
            f"{table} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"
        )

    def names(self):
        return [row[0] for row in self.rows(BOARD)]

    def header(self):
        """Return the titles of the leaderboard's columns."""
        first_lines = "cells => cells.map(cell => cell.innerText.split('\\n')[0])"
        return self.page.eval_on_selector_all(".board thead th", first_lines)

    def close(self):
        self.context.close()
        assert self.wrong == []
        outside = [url for url in self.requests if not url.startswith((self.base, "data:", "about:"))]
        assert outside == []


@pytest.fixture
def reader(browser, site):
    opened = Reader(browser, site.as_uri())
    yield opened
    opened.close()


def means_of(board, criterion, dataset):
    (setting,) = [s for s in board.settings if s.dataset == dataset]
    return board.means(setting, criteria[criterion])


@pytest.mark.parametrize("name", PAGES)
def test_every_part_shows_itself_in_light_dark_and_on_a_phone(reader, name):
    for scheme, width in (("light", 1360), ("dark", 1360), ("light", 375)):
        reader.page.emulate_media(color_scheme=scheme)
        reader.page.set_viewport_size({"width": width, "height": 800})
        page = reader.open(PAGES[name])
        assert page.locator("h1").count() == 1
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, f"{name} is {wider} px wider than a window of {width}"
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (max(map(int, background[4:-1].split(","))) < 80) == (scheme == "dark")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(reader, name, scheme):
    reader.page.emulate_media(color_scheme=scheme)
    page = reader.open(PAGES[name])
    page.evaluate("for (const node of document.querySelectorAll('details')) node.open = true")
    assert find_serious(page) == []


def test_figures_are_those_of_the_tables(reader, board):
    reader.open("#/leaderboard?criterion=AA")
    header = reader.header()
    shown = {(row[0], header[n]): row[n] for row in reader.rows(BOARD) for n in range(3, len(row))}
    grids = {grid.title: grid for grid in build_tables(board, "dataset")}
    compared = 0
    for dataset in ("Lost", "MSRCv2", "Birdsong"):
        for algorithm, entries in grids[dataset].rows:
            entry = entries[grids[dataset].header.index("AA") - 1]
            text = shown[algorithm, dataset]
            assert text.startswith(f"{100 * entry.mean:.2f} ± {100 * entry.std:.2f}"), (algorithm, dataset)
            assert ("●" in text, "○" in text) == (entry.best, entry.tied), (algorithm, dataset)
            compared += 1
    assert compared == 3 * len(board.algorithms) - 1  # VALEN has no run on MSRCv2
    averages = {row[0]: row[2] for row in reader.rows(BOARD)}
    assert averages["VALEN"] == "– (2 of 3)"
    mean = fmean(means_of(board, "AA", dataset)["PRODEN"] for dataset in ("Lost", "MSRCv2", "Birdsong"))
    assert averages["PRODEN"].startswith(f"{100 * mean:.2f}")


def test_average_ranks_are_those_of_python(reader, board):
    page = reader.open()
    ranks = {name: rank for name, (rank, n) in board.rank(criteria["CR"]).items() if n == 3}
    labelled = [n for n, s in enumerate(board.settings) if board.means(s, criteria["CR"])]
    found = page.evaluate(
        """labels => {
          const view = plench.readView(new URLSearchParams('show=rank'));
          const board = plench.computeBoard({...view, datasets: labels});
          return board.algorithms.map(a => [plench.index.algorithms[a].name, board.averages.get(a).value]);
        }""",
        [board.labels[board.settings[n]] for n in labelled],
    )
    shown = {name: value for name, value in found if value is not None}
    assert shown == pytest.approx(ranks)
    values = [0.5, 0.7, 0.5, 0.7 + 1e-15, 0.1]
    assert page.evaluate("values => plench.rankValues(values)", values) == rank_values(values).tolist()


def test_a_dataset_in_two_settings_counts_once_and_ranks_have_intervals(browser, tmp_path):
    runs = write_sweep(tmp_path / "runs", n_trials=5, n_hparams=1)
    for name, trial in product(ALGORITHMS, range(5)):
        experiment = experiment_of("Lost", name, 2000)
        taken = records(0.3 + len(name) / 20, trial, steps=2000)
        write_run(
            runs / f"long-{name}-{trial}", taken, "Lost", name, trial, steps=2000, experiment=experiment
        )
    board = read_board(runs)
    reader = Reader(browser, write_page(runs).as_uri())
    page = reader.open("#/leaderboard?show=rank")
    found = page.evaluate(
        """() => {
          const all = (query) => plench.computeBoard(plench.readView(new URLSearchParams(query))).averages;
          return ['show=rank', 'show=accuracy'].map((query) => [...all(query).values()]);
        }"""
    )
    ranks, comparison = board.rank(criteria["CR"]), compare_algorithms(board, criteria["CR"])
    limits = comparison["rank_intervals"]["over_splits"]
    for name, rank, accuracy in zip(board.algorithms, *found, strict=True):
        assert (rank["value"], rank["of"]) == (pytest.approx(ranks[name][0]), 2)
        assert rank["limits"] == pytest.approx(list(limits[name]))
        assert accuracy["value"] == pytest.approx(comparison["means"][name])
    said = page.inner_text(".explained")
    assert "a dataset counts once" in said
    assert "95 % interval, bootstrap over splits" in said
    assert "2 datasets in 3 settings" in page.inner_text(".lead")
    reader.open("#/compare?a=CC&b=LWS")
    pair = next(p for p in comparison["pairs"] if (p["first"], p["second"]) == ("CC", "LWS"))
    p_value = next(s["p_value"] for s in pair["splits"] if s["dataset"] == "MSRCv2")
    (row,) = [row for row in reader.rows() if row[0] == "MSRCv2"]
    assert row[4] == ("< 0.001" if p_value < 0.001 else f"{p_value:.3f}")
    reader.close()


def test_numbers_and_escapes_are_written_as_python_writes_them(reader):
    page = reader.open()
    numbers = [53.125, 53.375, 0.005, 2.675, -0.001, 12.5, 99.995, 0.125, 33.333333, -1.005]
    shown = page.evaluate("numbers => numbers.map(number => plench.fixed(number, 2))", numbers)
    assert shown == [f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−") for number in numbers]
    names = [MARKUP, "a_b|c*[x]`", "=1+1", "+x", "100% & $5 {y} ~^\\", "±×−…–√"]
    for name, escape in (("LaTeX", escape_latex), ("Markdown", escape_markdown)):
        escaped = page.evaluate("([to, names]) => names.map(n => plench.escapeAs(to, n))", [name, names])
        assert escaped == [escape(text) for text in names]
    rows = page.evaluate("names => names.map(name => plench.escapeCsv(name))", [*names, 'say "a, b"'])
    read = [next(csv.reader(io.StringIO(row)))[0] for row in rows]
    assert read == [*map(guard_formula, names), 'say "a, b"']


def test_sorting_by_a_column_and_back(reader, board):
    page = reader.open()
    means = means_of(board, "CR", "Lost")

    def sort_by(title):
        page.click(f".board th button:has-text('{title}')")
        return reader.names()

    shown = [means[name] for name in sort_by("Lost")]
    assert shown == sorted(shown, reverse=True)
    assert page.get_attribute(".board th:has-text('Lost')", "aria-sort") == "descending"
    shown = [means[name] for name in sort_by("Lost")]
    assert shown == sorted(shown)
    assert sort_by("Algorithm") == sorted(board.algorithms, key=str.lower)
    for _ in range(2):
        assert sort_by("MSRCv2")[-1] == "VALEN"  # what has no figure comes last, in either direction


def test_filters_search_and_switches(reader, board):
    page = reader.open()
    everything = len(board.algorithms)
    assert len(reader.names()) == everything
    page.fill("input[type=search]", "noisy")
    assert set(reader.names()) < set(board.algorithms)
    assert "PiCO_plus" in reader.names()
    page.fill("input[type=search]", "")
    page.click("label:has-text('classical')")
    assert set(reader.names()) == set(CLASSICAL)
    page.click("label:has-text('deep')")
    assert len(reader.names()) == everything - len(CLASSICAL)
    page.click("fieldset:has(legend:text-is('Methods')) label:has-text('all')")
    page.click("summary:has-text('Families')")
    page.uncheck("input[value='vanilla PLL']")
    assert "PRODEN" not in reader.names()
    page.check("input[value='vanilla PLL']")
    page.click("summary:has-text('Datasets')")
    page.uncheck("input[value='Lost']")
    assert page.locator(".board th:has-text('Lost')").count() == 0
    page.click("label:has-text('Rank')")
    assert "Rank of the mean" in page.inner_text(".explained")
    page.click("label:has-text('OA w/ ES')")
    assert "criterion=OA_ES" in page.url
    assert "dataset=MSRCv2" in page.url


def test_a_link_shows_what_its_sender_saw(reader, browser, site):
    page = reader.open()
    page.click("label:has-text('OA w/ ES')")
    page.click("summary:has-text('Datasets')")
    page.uncheck(f"input[value='{UNLABELLED}']")
    page.click("label:has-text('s.e.')")
    page.click(".board th button:has-text('MSRCv2')")
    page.fill("input[type=search]", "pll")
    seen = reader.page.inner_text(BOARD)
    other = Reader(browser, site.as_uri())
    other.open(page.url.partition("index.html")[2])
    assert other.page.inner_text(BOARD) == seen
    assert other.page.input_value("input[type=search]") == "pll"
    other.close()


def test_marks_stand_where_they_must(reader):
    reader.open()
    rows = {row[0]: row for row in reader.rows(BOARD)}
    page = reader.page
    at = {name: number for number, name in enumerate(reader.header())}
    assert "▼" in rows["GA"][2]  # and in the average: it is not averaged away
    places = {"GA": ("Lost", "▼"), "EXP": ("Lost", "†"), "PiCO": ("Lost", "◔"), "IDGP": ("Birdsong", "◔")}
    for name, (dataset, mark) in places.items():
        assert mark in rows[name][at[dataset]]
    assert rows["VALEN"][at["MSRCv2"]].startswith("–")
    assert "no accuracy" in page.inner_text(f".board th:has-text('{UNLABELLED}')")
    assert "not accuracies" in page.inner_text(".warning")
    page.click("summary:has-text('cells of')")
    notes = page.inner_text(".board .notes")
    assert "rests on 2 of 3 splits" in notes
    assert "1 failed" in notes


def test_copying_gives_the_table_in_each_format(reader, board):
    reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = reader.open("#/leaderboard?dataset=Lost&dataset=Birdsong")
    texts = {}
    for name in ("Markdown", "LaTeX", "CSV"):
        page.click(f".copies button:has-text('{name}')")
        page.wait_for_selector(".copies button:has-text('Copied')")
        texts[name] = page.evaluate("navigator.clipboard.readText()")
        page.wait_for_selector(f".copies button:has-text('{name}')")
    means = means_of(board, "CR", "Lost")
    rows = {row["Algorithm"]: row for row in csv.DictReader(io.StringIO(texts["CSV"]))}
    assert set(rows) == set(board.algorithms)
    assert {name: float(row["Lost mean"]) for name, row in rows.items()} == pytest.approx(means)
    assert f"| {escape_markdown(MARKUP)} |" in texts["Markdown"]
    assert f"**{100 * means['POP']:.2f} ± " in texts["Markdown"]
    assert rf"\textbf{{{100 * means['POP']:.2f} $\pm$" in texts["LaTeX"]
    assert texts["LaTeX"].count(r"\\") == len(board.algorithms) + 1


def test_a_cell_opens_down_to_its_runs(reader, board):
    page = reader.open()
    page.click(".board tr:has(a:text-is('CC')) td:nth-child(5) a")
    reader.settle()
    (lost,) = [s for s in board.settings if s.dataset == "Lost"]
    cell = board.cell(lost, "CC", criteria["CR"])
    assert page.inner_text("h1") == "CC on Lost"
    assert page.inner_text(".big").startswith(f"{100 * cell.mean:.2f} ± {100 * cell.std:.2f}")
    rows = reader.rows(".scroll[aria-label='What was chosen on each split'] table")
    assert [row[:2] for row in rows] == [[str(c.trial_seed), str(c.run.hparams_seed)] for c in cell.choices]
    assert [row[4][: len("12.34")] for row in rows] == [f"{100 * c.test_acc:.2f}"[:5] for c in cell.choices]
    assert page.locator("figure svg[role=img]").count() == 3
    assert "chosen at step" in page.get_attribute("figure svg[role=img] >> nth=0", "aria-label")
    configurations = reader.rows(".scroll[aria-label='Every configuration of this split'] table")
    assert len(configurations) == 5
    assert "chosen" in configurations[0][0]
    assert "configuration 2 (" in page.inner_text("main")  # far from the others, told outside the frame
    command = page.inner_text("[aria-label='the command'] code")
    assert command.startswith("plench train --algorithm CC --dataset Lost --hparams ")
    page.click("fieldset:has(legend:text-is('Split')) label:has-text('2')")
    assert "split=2" in page.url
    assert "--trial-seed 2" in page.inner_text("[aria-label='the command'] code")
    page.go_back()
    assert page.inner_text("h1") == "Leaderboard"


def test_two_algorithms_are_compared(reader, board):
    page = reader.open("#/compare?a=POP&b=CC")
    by_names = {
        (board.algorithms[pair.first], board.algorithms[pair.second]): pair
        for pair in compare_each_pair(board, criteria["CR"])
    }
    pair = by_names["CC", "POP"]
    assert page.inner_text(".big").startswith(f"{pair.losses} / {pair.ties} / {pair.wins}")
    text = page.inner_text("main")
    assert f"{-100 * pair.mean_difference:+.2f} points (POP is ahead)" in text
    assert "Wilcoxon's signed-rank test over the 3 datasets" in text
    assert "Power: none" in text
    rows = {row[0]: row for row in reader.rows(".scroll[aria-label^='Differences of'] table")}
    means = means_of(board, "CR", "Lost")
    assert rows["Lost"][3].startswith(f"{100 * (means['POP'] - means['CC']):+.2f}")
    assert [row[5] for row in rows.values()] == ["win"] * 3
    page.click("button:has-text('Swap')")
    reader.settle()
    assert page.inner_text(".big").startswith(f"{pair.wins} / {pair.ties} / {pair.losses}")
    page.select_option("label:has-text('Second') select", "VALEN")
    reader.settle()
    assert "2 datasets" in page.inner_text("main")


def test_the_keyboard_is_enough(reader):
    page = reader.open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#/leaderboard")
    page.focus("input[name=criterion]:checked")
    page.keyboard.press("ArrowRight")
    assert "criterion=AA" in page.url
    page.focus(".board th button:has-text('Lost')")
    page.keyboard.press("Enter")
    assert page.get_attribute(".board th:has-text('Lost')", "aria-sort") == "descending"
    page.focus(".board tbody td a >> nth=0")
    page.keyboard.press("Enter")
    reader.settle()
    assert page.url.count("#/cell?") == 1
    assert page.evaluate("document.activeElement.id") == "main"


def test_names_like_markup_stay_text(reader):
    page = reader.open("#/made")  # the address of earlier pages
    assert page.inner_text("h1") == "Provenance"
    assert f"RuntimeError: {MARKUP} & more" in page.inner_text("main")
    page = reader.open("#/leaderboard?search=%3Cscript")
    assert reader.names() == [MARKUP]
    page.click(f".board th a:has-text('{MARKUP}')")
    reader.settle()
    assert page.inner_text("h1") == MARKUP
    assert page.locator("main script").count() == 0


def test_light_and_dark_can_be_chosen_and_stay(reader):
    page = reader.open()
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page = reader.open("#/criteria")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_print_leaves_out_what_only_a_screen_needs(reader):
    page = reader.open()
    page.emulate_media(media="print")
    assert not page.is_visible(".controls")
    assert page.is_visible(".explained")
    assert len(page.pdf(format="A4", landscape=True)) > 10_000


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder without a line for each request."""

    def log_message(self, *_):
        pass


@pytest.fixture
def served(browser, tmp_path):
    """The page of an unfinished sweep on a server: its runs, its folder, and a reader."""
    runs = write_sweep(tmp_path / "runs", algorithms=("CC", "PRODEN"), n_trials=2, n_hparams=2)
    write_run(runs / "begun", records()[:4], "Lost", "LWS", status="running")
    folder = write_page(runs)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reader = Reader(browser, f"http://127.0.0.1:{server.server_port}")
    reader.page.clock.install()
    yield runs, folder, reader
    server.shutdown()
    server.server_close()
    reader.close()


def wait_for_reload(reader):
    with reader.page.expect_navigation():
        reader.page.clock.fast_forward(20_000)
    reader.settle()
    assert "NN" in reader.names()


def test_a_served_page_of_an_unfinished_sweep_shows_newer_data(served):
    runs, folder, reader = served
    page = reader.open("#/leaderboard?show=rank")
    assert "Not finished." in page.inner_text(".progress")
    assert "LWS" in reader.names()
    write_run(runs / "more", records(), "Lost", "NN")
    written = (folder / "index.html").stat().st_mtime
    write_page(runs)
    # The server gives the page's date in whole seconds: a browser cannot tell two pages of one second apart.
    os.utime(folder / "index.html", (written, written))
    wait_for_reload(reader)
    assert page.url.endswith("#/leaderboard?show=rank")


def test_a_page_read_just_before_its_data_were_replaced_recovers_by_itself(served):
    runs, folder, reader = served
    older = (folder / "index.html").read_bytes()
    write_run(runs / "more", records(), "Lost", "NN")
    write_page(runs)
    newer = (folder / "index.html").read_bytes()
    (folder / "index.html").write_bytes(older)
    reader.page.goto(f"{reader.base}/index.html#/leaderboard")
    assert "not there any more" in reader.page.wait_for_selector("main .wrong").inner_text()
    assert [text for text in reader.wrong if "404" not in text] == []
    reader.wrong.clear()
    (folder / "index.html").write_bytes(newer)
    wait_for_reload(reader)
