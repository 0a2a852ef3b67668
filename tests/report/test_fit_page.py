"""The page of a fitted model: what it says, that names stay text, and how a browser shows it."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from plench.cli import main
from plench.errors import DataError
from plench.model_file import read_head
from plench.report.fit_page import make_thumbnail, render_page, show_rows, write_fit_page
from tests.report.conftest import find_serious

MARKUP = "<script>alert(1)</script>"
CLASSES = ["cat", "dog", MARKUP]
SECTIONS = ["Verdict", "Accuracy", "Classes", "Calibration", "Relabel", "Annotators", "Methods", "Provenance"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A table of 320 texts with names like markup, the model of it, and its page."""
    folder = tmp_path_factory.mktemp("fitted")
    random = np.random.RandomState(0)
    rows = ['id,size,note,annotator_ann,"annotator_""><img src=x onerror=alert(2)>"']
    for number in range(320):
        label = random.randint(3)
        given = label if number > 8 else (label + 1) % 3  # some sets miss the truth
        other = random.randint(3)
        note = f"the {random.choice(['big', 'old', 'red'])} one number {number} & <b>{MARKUP}"
        rows.append(f"row{number},{4 * label + random.randn():.4f},{note},{CLASSES[given]},{CLASSES[other]}")
    data = folder / "pets.csv"
    data.write_text("\n".join(rows))
    words = ["fit", data, "-o", folder / "m.plench"]
    words += ["-a", "LR_EM", "--report", folder / "page.html"]
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture(scope="module")
def page(fitted):
    return (fitted / "page.html").read_text()


class Tags(HTMLParser):
    """Counts tags and collects attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def test_every_section_is_there_and_linked(page):
    found = Tags(page)
    ids = [value for _, name, value in found.attributes if name == "id"]
    links = [value for tag, name, value in found.attributes if (tag, name) == ("a", "href")]
    for section in SECTIONS:
        assert section.lower() in ids
        assert f"#{section.lower()}" in links
    assert found.tags.count("h1") == 1
    for reason in ("set probably misses the truth: model says", "two classes tie: ", "annotators split "):
        assert reason in page
    assert "set may miss the truth (probability 0." in page


def test_nothing_is_fetched_and_names_stay_text(page):
    found = Tags(page)
    assert found.tags.count("script") == 1, "the theme switch, and no name of a class"
    assert "img" not in found.tags
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)" in page
    assert '"&gt;&lt;img src=x' in page
    addresses = [value for _, name, value in found.attributes if name in ("src", "href", "data", "action")]
    assert all(value.startswith(("#", "data:")) for value in addresses)
    (policy,) = [v for _, name, v in found.attributes if name == "content" and v.startswith("default-src")]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_every_figure_says_in_words_what_it_shows(page):
    labels = re.findall(r'<svg[^>]*role="img"[^>]*aria-label="([^"]+)"|<svg[^>]*aria-label="([^"]+)"', page)
    assert page.count("<svg") == len(labels) == 5
    assert any("This model" in text for pair in labels for text in pair)


def test_the_page_is_made_again_from_the_model_alone(fitted, page, cli):
    again = fitted / "again.html"
    assert cli("report", fitted / "m.plench", "-o", again).out.strip() == str(again)
    assert "number 3 &amp;" not in again.read_text(), "a model file holds no text of its rows"
    data = fitted / "pets.csv"
    assert main(["report", str(fitted / "m.plench"), "-o", str(again), "--data", str(data)]) == 0
    assert again.read_text() == page
    shuffled = fitted / "shuffled.csv"
    lines = data.read_text().splitlines()
    shuffled.write_text("\n".join([lines[0], *lines[:0:-1]]))
    assert main(["report", str(fitted / "m.plench"), "-o", str(again), "--data", str(shuffled)]) == 0
    assert again.read_text() == page, "rows are found by their content"


def test_bad_calls_are_refused(fitted, cli):
    model = str(fitted / "m.plench")
    for words, message in (
        (["report", model, "-o", str(fitted)], "expected an HTML file"),
        (["report", model, model, "-o", "x.html"], "one page is of one model"),
        (["report", str(fitted), "-o", "x", "--data", "y.csv"], "--data is for the page of a model"),
        (
            ["fit", str(fitted / "pets.csv"), "-o", "m.plench", "--report", "page.txt"],
            "expected an HTML file",
        ),
    ):
        assert message in cli(*words, code=2).err


def test_a_model_that_was_not_assessed_has_a_short_page(fitted, tmp_path):
    head, _ = read_head(fitted / "m.plench")
    text = render_page({**head, "notes": {}}, {})
    assert "There is no verdict" in text
    assert "own test set" not in text
    quality = {**head["notes"]["quality"], "own_test": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 90}}
    text = render_page({**head, "notes": {"quality": quality}}, {})
    assert "measured on the data's own test set 40.0 to 60.0" in text
    assert "What to relabel" not in text
    with pytest.raises(DataError, match="not described as"):
        write_fit_page({"run": {}}, tmp_path / "x.html")


def test_images_become_thumbnails():
    images = np.random.RandomState(0).randint(255, size=(3, 3, 200, 100)).astype(np.uint8)
    shown = show_rows(images, {7: 2})
    assert shown[7]["image"] == make_thumbnail(images[2])
    assert len(shown[7]["image"]) < 200 * 100 * 3
    assert make_thumbnail(images[0, :1]).startswith("data:image/png;base64,")
    assert show_rows(np.zeros((3, 5), np.float32), {1: 0}) == {}


@pytest.mark.real
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 375)])
def test_a_browser_shows_it_and_axe_finds_nothing_serious(browser, fitted, scheme, width):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    opened, wrong, requests = context.new_page(), [], []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    opened.on("request", lambda request: requests.append(request.url))
    address = (fitted / "page.html").as_uri()
    opened.goto(address)
    assert opened.inner_text("h1").startswith("LR_EM on pets@")
    wider = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0
    background = opened.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 80) == (scheme == "dark")
    assert find_serious(opened) == []
    opened.click("#theme")
    assert opened.evaluate("document.documentElement.dataset.theme") == (
        "light" if scheme == "dark" else "dark"
    )
    opened.emulate_media(media="print")
    assert not opened.is_visible(".top")
    assert len(opened.pdf(format="A4")) > 10_000
    assert wrong == []
    assert {url for url in requests if not url.startswith("data:")} == {address}
    context.close()


def test_the_report_of_a_fit_is_that_of_its_page(fitted, page, capsys):
    notes = read_head(fitted / "m.plench")[0]["notes"]
    doubts = notes["review"]["doubts"]
    assert doubts["misses"] + doubts["may_miss"] >= 5
    assert f"set may miss the truth: {doubts['may_miss']}" in page
    assert f"{100 * notes['quality']['CR']['value']:.1f}" in page
    assert len(notes["rows"]["audit"]["ids"]) == 64
