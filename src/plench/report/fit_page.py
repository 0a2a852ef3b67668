"""One page about a fitted model: a self-contained HTML file, made of the description in the model's file.

It is `fit_page.html` with the look of the leaderboard page: its style sheets and theme switch, inlined.
Nothing is fetched and nothing runs but the theme switch. Names from data become text nodes; ElementTree
escapes them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from plench.data.encoders import open_image
from plench.data.tables import Table
from plench.errors import DataError
from plench.files import write_text
from plench.runs.folder import WARNINGS
from plench.settings import __version__
from plench.text import clean_text, counted

Element = ElementTree.Element
Node = Element | str | None
Notes = Mapping[str, Any]

MAX_ROWS = 50  # of what to relabel, and annotators
MAX_CLASSES = 24  # of a figure with a row per class
MAX_TEXT = 240
THUMBNAIL = 72  # pixels
WIDTH = 420  # of figures, so that letters keep their size on a phone
RANGES = {
    "certain": "certain if sets are complete",
    "uniform": "if distractors are uniform",
    "confusable": "if distractors are confusable",
    "truth": "measured with true labels",
    "own_test": "measured on the data's own test set",
}
KINDS = {
    "misses": "set probably misses the truth",
    "may_miss": "set may miss the truth",
    "tie": "two classes tie",
    "split": "annotators split",
}


def h(name: str, /, *content: Node | Iterable[Node], **attributes: Any) -> Element:
    """Make an element: `h("p.quiet", "text", child, aria_label="…")`; texts are escaped on writing.

    Places in drawings, which are floats, are written with one digit.
    """
    tag, *classes = name.split(".")
    element = Element(tag)
    for key, value in attributes.items():
        if value is not None:
            shown = f"{value:.1f}" if isinstance(value, float) else clean_text(str(value))
            element.set(key.replace("_", "-"), shown)
    if classes:
        element.set("class", " ".join(classes))
    for each in content:
        for node in [each] if isinstance(each, str | Element) or each is None else each:
            if isinstance(node, str):
                text = clean_text(node)
                if len(element):
                    element[-1].tail = (element[-1].tail or "") + text
                else:
                    element.text = (element.text or "") + text
            elif node is not None:
                element.append(node)
    return element


def write_fit_page(
    head: Mapping[str, Any], path: Path, rows: Mapping[int, Mapping[str, str]] | None = None
) -> None:
    """Write the page of a model.

    Parameters
    ----------
    head : mapping
        The description in the model's file.
    path : Path
        The file to write.
    rows : mapping, optional
        What to show of rows to relabel, by number: `text`, or `image` as a data address (`show_rows`).
    """
    try:
        page = render_page(head, rows or {})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"the model is not described as `plench fit` does it ({error!r})") from None
    write_text(path, page)


def render_page(head: Mapping[str, Any], rows: Mapping[int, Mapping[str, str]]) -> str:
    """Return the page as HTML."""
    notes = head.get("notes") or {}
    config, data = head["run"]["config"], head["run"]["dataset"]
    title = f"{config['algorithm']} on {data['name']}"
    review = notes.get("review") or {}
    sections = {
        "Verdict": show_verdict(notes, data),
        "Accuracy": show_accuracy(notes),
        "Classes": show_classes(review),
        "Calibration": show_calibration(notes, review),
        "Relabel": show_relabel(review, rows, (notes.get("verdict") or {}).get("verdict")),
        "Annotators": show_annotators(review),
        "Methods": show_methods(notes, config),
        "Provenance": show_provenance(head),
    }
    there = {name: h("div", nodes, id=name.lower()) for name, nodes in sections.items() if nodes}
    links = [h("li", h("a", name, href=f"#{name.lower()}")) for name in there]
    page = files("plench.report")
    assets = page.joinpath("site", "assets")
    read = {name: assets.joinpath(name).read_text("utf-8") for name in ("site.css", "tables.css", "theme.js")}
    parts = {
        "TITLE": html.escape(clean_text(title), quote=False),
        "VERSION": __version__,
        "STYLE": f"{read['site.css']}\n{read['tables.css']}",
        "SCRIPT": read["theme.js"],
        **{
            name: "".join(ElementTree.tostring(each, encoding="unicode", method="html") for each in elements)
            for name, elements in (("LINKS", links), ("SECTIONS", there.values()))
        },
    }
    for name in ("STYLE", "SCRIPT"):  # by which the policy allows the inlined texts
        digest = hashlib.sha256(parts[name].encode()).digest()
        parts[f"{name}_HASH"] = "sha256-" + base64.b64encode(digest).decode("ascii")
    template = page.joinpath("fit_page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


# Parts


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[Node]], numbers: Iterable[int] = ()
) -> Element:
    """Return a table that scrolls in itself; the columns `numbers` are set as numbers."""
    right = set(numbers)

    def cells(row: Sequence[Node]) -> list[Element]:
        name = [
            "th" if n == 0 else "td.number" if n in right else "td.long" if n > 1 else "td"
            for n in range(len(row))
        ]
        return [
            h(kind, node, scope="row" if kind == "th" else None) for kind, node in zip(name, row, strict=True)
        ]

    top = [h("th.number" if n in right else "th", name, scope="col") for n, name in enumerate(header)]
    body = h("tbody", [h("tr", cells(row)) for row in rows])
    return h(
        "div.scroll",
        h("table", h("thead", h("tr", top)), body),
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def figure(title: str, words: str, drawing: Element) -> Element:
    """Return a drawing with its title and what it shows in words, which a screen reader reads too."""
    drawing.set("role", "img")
    drawing.set("aria-label", clean_text(f"{title}. {words}"))
    return h("figure.figure", h("figcaption", h("strong", title), " ", h("span", words)), drawing)


def svg(height: float, *content: Node | Iterable[Node]) -> Element:
    """Return a drawing."""
    return h("svg.chart", *content, viewBox=f"0 0 {WIDTH} {height:g}", width=f"{WIDTH}", height=f"{height:g}")


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Element:
    """Return a line."""
    return h(f"line.{kind}", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def text(content: str, x: float, y: float, anchor: str = "start", kind: str = "tick") -> Element:
    """Return a text in a drawing."""
    return h(f"text.{kind}", content, x=float(x), y=float(y), text_anchor=anchor)


def short(name: str, longest: int = 20) -> str:
    """Return a name cut to a length."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as percent, a dash for None."""
    return "–" if value is None else f"{100 * value:.{digits}f}".replace("-", "−")


def interval(found: Mapping[str, Any] | None) -> str:
    """Return a share with its interval in percent."""
    if found is None:
        return "–"
    return f"{percent(found['value'])} ({percent(found['low'])} to {percent(found['high'])})"


def draw_shares(rows: Sequence[tuple[str, float | None, float | None, float | None, str]]) -> Element:
    """Draw shares with intervals, a row each: name, value, low, high, and the class of its mark."""
    step, bottom = 38, 38 * len(rows) + 6

    def at(value: float) -> float:
        return 8 + max(0.0, min(1.0, value)) * (WIDTH - 24)

    nodes: list[Node] = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        nodes += [
            line("grid", at(tick), 2, at(tick), bottom),
            text(f"{100 * tick:g}", at(tick), bottom + 15, "middle"),
        ]
    for n, (name, value, low, high, kind) in enumerate(rows):
        y = step * n + 28
        nodes.append(text(name, 8, y - 12, kind="label"))
        if low is not None and high is not None:
            spans = [(low, 0, high, 0), (low, -4, low, 4), (high, -4, high, 4)]
            nodes += [line(f"line.{kind}", at(x1), y + y1, at(x2), y + y2) for x1, y1, x2, y2 in spans]
        if value is not None:
            nodes.append(h(f"circle.mark.{kind}", cx=at(value), cy=y, r=5))
    return svg(bottom + 24, nodes)


# Sections


def show_verdict(notes: Notes, data: Mapping[str, Any]) -> list[Node]:
    """Show the verdict on the model."""
    verdict, reserved = notes.get("verdict"), (notes.get("reserved") or {})
    n_examples = reserved.get("n_examples") or data["n_train"]
    n_reserved = len(reserved.get("rows") or ())
    size = reserved.get("mean_candidates") or data.get("train_mean_candidates")
    sets = f"{size:.2f} candidates per row" if size else ""
    learned = [f"{n_examples:,} rows", f"{data['n_classes']} classes", sets]
    kept = f"{n_reserved:,} rows were reserved: not trained on and not used to choose." if n_reserved else ""
    nodes: list[Node] = [h("p.lead", f"Learned from {', '.join(filter(None, learned))}. {kept}")]
    if verdict is None:
        why = "There is no verdict: the model was not compared with baselines on rows that it had not seen."
        return [*nodes, h("h2", "Verdict"), h("p.warning", why)]
    word = verdict["verdict"]
    kind = "p.big" if word == "good" else "p.big.wrong"
    reasons = ". ".join(text[:1].upper() + text[1:] for text in verdict["reasons"])
    nodes += [h("h2", "Verdict"), h(kind, word[:1].upper() + word[1:], h("small", f"{reasons}."))]
    if (notes.get("quality") or {}).get("source") == "cross-fitted":
        warning = (
            "No guarantee holds: with so few rows or groups none are reserved; figures are those of folds."
        )
        nodes.append(h("p.warning", warning))
    return nodes


def show_accuracy(notes: Notes) -> list[Node]:
    """Compare the model with baselines, then say what is known of its accuracy."""
    verdict, quality = notes.get("verdict"), notes.get("quality")
    nodes: list[Node] = []
    charts: list[Node] = []
    if verdict:
        measure = {"CR": "covering rate", "accuracy": "accuracy"}.get(verdict["measure"], verdict["measure"])
        ours = verdict["agreement"]
        rows = [("this model", ours["value"], ours["low"], ours["high"], "chosen")]
        rows += [(each["name"], each["agreement"], None, None, "plainpoint") for each in verdict["baselines"]]
        best = max(verdict["baselines"], key=lambda each: each["agreement"])
        words = (
            f"{measure.capitalize()} in percent, on rows that were not trained on. This model "
            f"{interval(ours)}; the best baseline, {best['name']}, {percent(best['agreement'])}."
        )
        charts.append(figure("Compared with baselines", words, draw_shares(rows)))
        gains = [
            (each["name"], percent(each["agreement"]), interval(each["advantage"]))
            for each in verdict["baselines"]
        ]
        header = ["Baseline", f"{measure.capitalize()}, %", "Advantage of the model, points (95 %)"]
        nodes.append(table("Baselines", header, gains, (1, 2)))
    if quality and "CR" in quality:
        shown = [(words, quality.get(key)) for key, words in RANGES.items() if quality.get(key)]
        rate = quality["CR"]
        rows = [("prediction is a candidate (CR)", rate["value"], rate["low"], rate["high"], "chosen")]
        for words, found in shown:
            value = None if words == RANGES["certain"] else found["value"]
            rows.append(
                (words, value, found["low"], found["high"], "series1" if value is None else "series2")
            )
        told = "; ".join(f"{name} {percent(low)} to {percent(high)}" for name, _, low, high, _ in rows)
        guess = f"A random guess is a candidate in {percent(quality.get('chance'))}."
        words = f"In percent, with 95 % intervals: {told}. {guess}"
        charts.append(figure("What is known of the accuracy", words, draw_shares(rows)))
        nodes.append(
            h(
                "p.quiet",
                "Candidate sets alone do not determine the accuracy. An estimate is only as good as "
                "its assumption; labels of fifty random rows settle it: ",
                h("code", "plench audit MODEL DATA -n 50 -o audit.csv"),
            )
        )
    return [h("h2", "How good it is"), h("div.pair", charts), *nodes] if charts else []


def show_classes(review: Notes) -> list[Node]:
    """Show the balance of classes before and after, and which resolved labels the model confuses."""
    if not review.get("measured"):
        return []
    names, before, after = review["classes"], review["before"], review["after"]
    order = sorted(range(len(names)), key=lambda k: -after[k])[:MAX_CLASSES]
    most, left, step = max([*before, *after, 1]), 130, 36
    nodes: list[Node] = []
    for n, k in enumerate(order):
        y = 8 + step * n
        nodes.append(text(short(names[k]), left - 8, y + 18, "end", "label"))
        for value, dy, kind in ((before[k], 2, "other"), (after[k], 15, "chosen")):
            width = value / most * (WIDTH - left - 52)
            bar = h(f"rect.mark.{kind}", x=left, y=y + dy, width=float(width), height=11)
            nodes += [bar, text(f"{value:,.0f}", left + width + 5, y + dy + 10)]
    bars = svg(16 + step * len(order), nodes)
    changes = sorted(range(len(names)), key=lambda k: after[k] - before[k])
    words = (
        "Rows per class: before (gray, each row in equal shares for its candidates) and after resolving "
        f"(blue). {names[changes[-1]]} gains most ({after[changes[-1]] - before[changes[-1]]:+,.0f}), "
        f"{names[changes[0]]} loses most ({after[changes[0]] - before[changes[0]]:+,.0f})."
    )
    if len(names) > MAX_CLASSES:
        words += f" The largest {MAX_CLASSES} of {len(names)} classes."
    charts = [figure("Class balance before and after", words, bars)]
    counts = np.array(review["confusion"])
    off = counts - np.diag(np.diag(counts))
    pairs = [divmod(int(k), len(names)) for k in np.argsort(-off, axis=None, kind="stable")[:5]]
    told = [f"{names[i]} is predicted as {names[j]} in {off[i, j]:,}" for i, j in pairs if off[i, j]]
    words = (
        "Rows: the candidate that a row is resolved to. Columns: what a model that was not trained on it "
        f"predicts, whatever its candidates. {'; '.join(told) or 'They never differ'}."
    )
    if len(names) <= MAX_CLASSES:
        charts.append(figure("Confusion of resolved labels", words, draw_matrix(names, counts)))
    else:
        charts.append(h("div", h("h3", "Confusion of resolved labels"), h("p", words)))
    return [h("h2", "Classes"), h("div.pair", charts)]


def draw_matrix(names: Sequence[str], counts: Any) -> Element:
    """Draw a matrix of counts, shaded by their share of the row."""
    n, left, top = len(names), 110, 84
    step = min(42.0, (WIDTH - left - 4) / n)
    nodes: list[Node] = []
    for i, name in enumerate(names):
        y, x = top + step * i, left + step * (i + 0.5)
        nodes.append(text(short(name, 16), left - 6, y + step / 2 + 4, "end", "label"))
        place = f"translate({x + 4:.1f} {top - 6}) rotate(-50)"
        nodes.append(h("text.label", short(name, 13), transform=place))
        total = max(1, int(counts[i].sum()))
        for j in range(n):
            at = {"x": left + step * j, "y": y, "width": step, "height": step}
            told = h("title", f"{name}, {names[j]}: {counts[i, j]:,}")
            nodes.append(h("rect.cellfill", told, **at, fill_opacity=f"{0.5 * counts[i, j] / total:.3f}"))
            if counts[i, j] and step >= 24:
                middle = left + step * (j + 0.5)
                nodes.append(text(f"{counts[i, j]}", middle, y + step / 2 + 4, "middle", "label"))
    return svg(top + step * n + 4, nodes)


def show_calibration(notes: Notes, review: Notes) -> list[Node]:
    """Compare probabilities with how often predictions are candidates, or right where the truth is known."""
    bins = review.get("calibration") or []
    if not bins:
        return []
    box, side = (52, 12, WIDTH - 14, 268), 256

    def at(value: float) -> tuple[float, float]:
        return box[0] + value * (box[2] - box[0]), box[3] - value * side

    nodes: list[Node] = [line("zero", *at(0), *at(1))]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        (x, y) = at(tick)
        nodes += [line("grid", box[0], y, box[2], y), text(f"{100 * tick:g}", box[0] - 6, y + 4, "end")]
        nodes.append(text(f"{100 * tick:g}", x, box[3] + 17, "middle"))
    nodes.append(line("axis", box[0], box[3], box[2], box[3]))
    nodes.append(
        text("probability of the prediction, %", (box[0] + box[2]) / 2, box[3] + 36, "middle", "label")
    )
    is_known = any(each.get("right") is not None for each in bins)
    for each in bins:
        for key, kind in (("covered", "chosen"), ("right", "series1")):
            found = each.get(key)
            if found is None:
                continue
            x, y = at(each["probability"])[0], at(found["value"])[1]
            nodes.append(line(f"line.{kind}", x, at(found["low"])[1], x, at(found["high"])[1]))
            circle = h(f"circle.mark.{kind}", cx=x, cy=y, r=4.5)
            square = h(f"rect.mark.{kind}", x=x - 4, y=y - 4, width=8, height=8)
            nodes.append(circle if key == "covered" else square)
    told = "; ".join(
        f"{percent(each['probability'], 0)}: {percent(each['covered']['value'], 0)}" for each in bins
    )
    words = (
        f"Circles: how often the prediction is a candidate, by its probability ({told}), with 95 % "
        "intervals. If sets are complete, the accuracy is at most that: circles below the broken line say "
        "that probabilities are too high."
    )
    if is_known:
        words += " Squares: how often it is right, where the truth is known."
    calibration = notes.get("calibration")
    lead: Node = None
    if calibration:
        scale = f"a temperature of {calibration['temperature']:.2f}, fitted on {calibration['n']:,} rows"
        fitted = f"Probabilities are scaled by {scale}."
        if not calibration["is_calibrated"]:
            fitted = "Probabilities are not calibrated: the rows do not determine a temperature."
        lead = h("p", fitted)
    return [
        h("h2", "Calibration"),
        lead,
        figure("Probabilities and candidates", words, svg(box[3] + 44, nodes)),
    ]


def show_relabel(review: Notes, rows: Mapping[int, Mapping[str, str]], verdict: str | None) -> list[Node]:
    """List the rows to relabel with the reason."""
    if "relabel" not in review:
        return []
    total = sum(review["doubts"].values())
    counts = [
        f"{words}: {review['doubts'][kind]:,}" for kind, words in KINDS.items() if kind in review["doubts"]
    ]
    nodes: list[Node] = [h("h2", "What to relabel")]
    if verdict == "no better than guessing":
        nodes.append(h("p.warning", "The model does not beat guessing, so this section means little."))
    if not total:
        return [*nodes, h("p", f"Nothing stands out among {review['measured']:,} rows.")]
    nodes.append(
        h(
            "p",
            f"{counted(total, 'row')} of {review['measured']:,}, each judged by a model that was not trained "
            f"on it: {', '.join(counts)}. Sets that probably miss the truth come first, then one row of each "
            "other kind in turn, the clearest first.",
        )
    )
    listed = []
    for n, each in enumerate(review["relabel"][:MAX_ROWS], 1):
        shown = rows.get(each["row"], {})
        content: Node = shown.get("text") or ""
        if "image" in shown:
            content = h(
                "img.thumb", src=shown["image"], alt=f"row {each['row']}", width=THUMBNAIL, height=THUMBNAIL
            )
        name = f"{each['item']}" if each["item"] else f"row {each['row']}"
        listed.append((f"{n}", name, each["reason"], content)[: 4 if rows else 3])
    header = ["#", "Item", "Why", "Content"][: 4 if rows else 3]
    nodes.append(table("Rows to relabel", header, listed))
    more = "plench resolve MODEL DATA -o resolved.csv --relabel relabel.csv"
    rest = f"The first {MAX_ROWS} of {total:,}. " if total > MAX_ROWS else ""
    nodes.append(h("p.quiet", f"{rest}As a file: ", h("code", more)))
    return nodes


def show_annotators(review: Notes) -> list[Node]:
    """List the annotators, those who agree least first."""
    annotators = review.get("annotators") or []
    if not annotators:
        return []
    flagged = [each for each in annotators if each["flag"] and not each["flag"].startswith("too few")]
    words = (
        f"{counted(len(annotators), 'annotator')}, {len(flagged)} flagged. Skill is agreement with models "
        "that were not trained on the items, corrected for chance and set size: 0 for an annotator who "
        "always gives the same answer, 100 for full agreement. Mistakes that most annotators share are not "
        "found in this way."
    )
    listed = [
        (
            each["annotator"],
            f"{each['n_answers']:,}",
            percent(each["skill"], 0),
            "" if each["skill"] is None else f"{percent(each['low'], 0)} to {percent(each['high'], 0)}",
            f"{percent(each['agreement'], 0)} / {percent(each['chance'], 0)}",
            each["flag"],
            "; ".join(each["confusions"]),
        )
        for each in annotators[:MAX_ROWS]
    ]
    header = ["Annotator", "Answers", "Skill", "95 %", "Agreement / chance, %", "Flag", "Confusions"]
    nodes = [
        h("h2", "Whom to trust"),
        h("p", words),
        table("Ratings of annotators", header, listed, (1, 2, 3, 4)),
    ]
    again = "plench fit DATA -o MODEL --drop-annotators A,B"
    first = f"The first {MAX_ROWS}. " if len(annotators) > MAX_ROWS else ""
    return [*nodes, h("p.quiet", f"{first}To see whether leaving some out helps: ", h("code", again))]


def show_methods(notes: Notes, config: Mapping[str, Any]) -> list[Node]:
    """List the methods that were tried, with their budget."""
    tried = notes.get("leaderboard")
    chosen = ", ".join(f"{key} = {value}" for key, value in config["hparams"].items())
    nodes: list[Node] = [h("h2", "Methods"), h("p", f"{config['algorithm']} with {chosen}.")]
    if not tried:
        return [*nodes, h("p", "No other method was tried.")]
    seconds = sum(row["seconds"] for row in tried)
    n_runs = sum(row["splits"] for row in tried)
    nodes.append(
        h(
            "p",
            f"Chosen among {counted(len(tried), 'configuration')}: {n_runs} runs, {seconds:,.0f} s in all.",
        )
    )
    rows = [
        (
            row["algorithm"] + (" (chosen)" if row["chosen"] else ""),
            "default" if row["configuration"] == 0 else str(row["configuration"]),
            percent(row["CR"]),
            percent(row["AA"]),
            str(row["splits"]),
            f"{row['seconds']:,.1f}",
            row["status"],
        )
        for row in tried
    ]
    header = ["Method", "Configuration", "CR, %", "AA, %", "Splits", "Seconds", "Status"]
    nodes.append(table("Methods tried", header, rows, (2, 3, 4, 5)))
    return [*nodes, h("p.quiet", "CR and AA on the held-out rows by which the choice was made.")]


def show_provenance(head: Mapping[str, Any]) -> list[Node]:
    """Say what the model was made of and with."""
    run, notes = head["run"], head.get("notes") or {}
    data, config, versions = run["dataset"], run["config"], run["versions"]
    facts = {
        "data": f"{data['name']}: {data['source']}",
        "fingerprint": (notes.get("reserved") or {}).get("fingerprint") or data["fingerprint"],
        "trained on": f"{data['n_train']:,} rows, {head['updates']:,} updates",
        "seed": str(config["seed"]),
        "made": run["timings"]["written"],
        "versions": ", ".join(
            f"{name} {value}" for name, value in versions.items() if value not in (None, "")
        ),
        "warnings": "; ".join(run.get(WARNINGS) or ()) or None,
    }
    listed = [h("div", h("dt", name), h("dd", str(value))) for name, value in facts.items() if value]
    return [h("h2", "Provenance"), h("dl.facts", listed)]


# Rows


def show_rows(features: Any, places: Mapping[int, int]) -> dict[int, dict[str, str]]:
    """Return what the page shows of rows: their texts, or thumbnails of images; `places` by row number."""
    shown: dict[int, dict[str, str]] = {}
    for number, place in places.items():
        if isinstance(features, Table):
            row = features[np.array([place])]
            files = [
                each.images[each.values[0]] for each in row.columns if each.images and each.values[0] >= 0
            ]
            if files:
                shown[number] = {"image": make_thumbnail(np.asarray(open_image(files[0])).transpose(2, 0, 1))}
                continue
            cells = [(column.name, column.kind, column.texts()[0]) for column in row.columns]
            texts = [text for _, kind, text in cells if kind == "text" and text]
            content = " · ".join(texts) or ", ".join(f"{name} {text}" for name, _, text in cells[:8] if text)
            shown[number] = {"text": short(content, MAX_TEXT)}
        elif features.ndim == 4:
            shown[number] = {"image": make_thumbnail(features[place])}
    return shown


def make_thumbnail(image: Any) -> str:
    """Return an image (C, H, W) as a data address, small."""
    from PIL import Image

    pixels = np.ascontiguousarray(np.moveaxis(image, 0, -1))
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
    sink = io.BytesIO()
    picture.save(sink, "PNG")
    return "data:image/png;base64," + base64.b64encode(sink.getvalue()).decode("ascii")
