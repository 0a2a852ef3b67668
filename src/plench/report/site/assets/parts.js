// Parts that several pages share: look-ups of the index, links, controls, tables that sort, columns, copying.
(function () {
  "use strict";
  const p = window.plench;
  const { h, address } = p;

  let index = null;

  /** Make the look-ups of the index once. */
  function useIndex(content) {
    const places = (entries, key) => new Map(entries.map((entry, number) => [entry[key], number]));
    index = content;
    index.cellAt = new Map(index.cells.map((cell) => [cell.at.join(), cell]));
    index.algorithmAt = places(index.algorithms, "name");
    index.settingAt = places(index.settings, "label");
    index.criterionAt = places(index.criteria, "name");
    p.index = index;
  }

  function findCell(setting, algorithm, criterion) {
    return index.cellAt.get(`${setting},${algorithm},${criterion}`) ?? null;
  }

  /** The algorithms or settings for which a cell is there. */
  const withCell = (entries, find) => entries.map((_, number) => number).filter((number) => find(number) !== null);

  /** The criterion that an address names, else the first. */
  const readCriterion = (query) => index.criterionAt.get(query.get("criterion")) ?? 0;

  const cellLink = (setting, algorithm, criterion, ...text) => {
    const dataset = index.settings[setting].label;
    const names = { algorithm: index.algorithms[algorithm].name, dataset, criterion: index.criteria[criterion].name };
    return h("a", { href: address("cell", names) }, text);
  };
  const algorithmLink = (number) => {
    const { name } = index.algorithms[number];
    return h("a", { href: address("algorithm", { name }) }, name);
  };
  const datasetLink = (number) => {
    const { label } = index.settings[number];
    return h("a", { href: address("dataset", { name: label }) }, label);
  };

  // Ranks and marks

  const ROUNDING = 1e-12;

  /** Ranks, 1 for the highest; equal ones (to 12 digits) share the average of their ranks. */
  function rankValues(values) {
    const rounded = values.map((value) => Math.round(value * 1e12));
    return rounded.map((value) => {
      const above = rounded.filter((other) => other > value).length;
      const equal = rounded.filter((other) => other === value).length;
      return above + (equal + 1) / 2;
    });
  }

  /** The best cell of a setting among some algorithms, and the rank of each cell by its mean. */
  function rankCells(setting, algorithms, criterion) {
    const sign = index.settings[setting].labelled || index.criteria[criterion].higher ? 1 : -1;
    const cells = algorithms
      .map((algorithm) => findCell(setting, algorithm, criterion))
      .filter((cell) => cell && cell.mean !== null);
    const values = cells.map((cell) => sign * cell.mean);
    const ranks = rankValues(values);
    return {
      best: cells[values.indexOf(Math.max(...values))] ?? null,
      upwards: sign > 0,
      of: cells.length,
      rank: (cell) => ranks[cells.indexOf(cell)] ?? null,
    };
  }

  const MARKS = {
    best: ["●", "best of its column", "best"],
    tied: ["○", "within one standard error (the best cell's own) of the best", "within noise of the best"],
    chance: ["▼", "below chance: less than 1 / number of classes", "below chance"],
    diverged: [
      "†",
      "some of its runs diverged; they count with checkpoints before that, or not at all",
      "some runs diverged",
    ],
    lacking: ["◔", "rests on fewer runs or splits than planned", "incomplete"],
    none: ["–", "no figure; a row with one has no average"],
  };

  const isBelowChance = (setting, value) => {
    const { chance, labelled } = index.settings[setting];
    return labelled && chance !== null && value !== null && value < chance;
  };

  /** The marks of a cell; `ranked` (from rankCells) says which is best. */
  function cellMarks(cell, ranked = null) {
    const marks = [];
    if (cell.mean !== null && ranked?.best) {
      const { best } = ranked;
      const larger = Math.max(Math.abs(cell.mean), Math.abs(best.mean));
      if (Math.abs(cell.mean - best.mean) <= 1e-9 * larger) marks.push("best");
      else if (ranked.upwards && best.se !== null && cell.mean >= best.mean - best.se - ROUNDING) marks.push("tied");
    }
    if (isBelowChance(cell.at[0], cell.mean)) marks.push("chance");
    if (cell.diverged) marks.push("diverged");
    if (cell.lacking) marks.push("lacking");
    return marks;
  }

  function markNodes(marks) {
    const nodes = marks.map((mark) => [
      h(`span.sign.${mark}`, { "aria-hidden": "true", title: MARKS[mark][1] }, MARKS[mark][0]),
      h("span.unseen", `, ${MARKS[mark][2]}`),
    ]);
    return h("span.signs", nodes);
  }

  /** A cell's mean ± its standard deviation (or `error`, another of its figures) in percent. */
  function meanText(cell, error = "std") {
    if (!cell || cell.mean === null) return "–";
    return `${p.percent(cell.mean)}${(cell[error] ?? null) === null ? "" : ` ± ${p.percent(cell[error])}`}`;
  }

  const rankText = (rank) => p.fixed(rank, Number.isInteger(rank) ? 0 : 1);

  // Controls

  /** One of a few, as a row of buttons (radio inputs). Options: [[value, text, explanation]]. */
  function choice(legendText, name, options, value, change) {
    const segment = ([key, text, explanation]) =>
      h(
        "label",
        { title: explanation },
        h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }),
        h("span", text),
      );
    return h("fieldset.choice", h("legend", legendText), h("div.segments", options.map(segment)));
  }

  /** One of many, as a drop-down list. */
  function select(labelText, options, value, change) {
    return h(
      "label.field",
      h("span", labelText),
      h(
        "select",
        { onchange: (event) => change(event.target.value) },
        options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
      ),
    );
  }

  /** Some of many, as check boxes behind a button. `chosen` null means all. */
  function several(labelText, options, chosen, change) {
    const boxes = options.map((text) =>
      h("input", { type: "checkbox", value: text, checked: chosen === null || chosen.includes(text) }),
    );
    const shown = h("span");
    const update = () => {
      const on = boxes.filter((box) => box.checked).map((box) => box.value);
      shown.textContent = on.length === boxes.length ? `all ${on.length}` : `${on.length} of ${boxes.length}`;
      return on.length === boxes.length ? null : on;
    };
    const report = () => change(update());
    for (const box of boxes) box.addEventListener("change", report);
    const button = (state, text) => {
      const set = () => {
        for (const box of boxes) box.checked = state;
        report();
      };
      return h("button", { type: "button", onclick: set }, text);
    };
    update();
    return h(
      "details.several",
      h("summary", `${labelText}: `, shown),
      h(
        "fieldset",
        h("legend.unseen", labelText),
        h("p", button(true, "all"), " ", button(false, "none")),
        options.map((text, number) => h("label", boxes[number], " ", text)),
      ),
    );
  }

  /** A way to switch the criterion on pages that have one; `change` gets its number and its name. */
  function criterionChoice(number, change) {
    const options = index.criteria.map((entry) => [entry.name, entry.title, entry.meaning]);
    const set = (name) => change(index.criterionAt.get(name), name);
    return choice("Chosen by", "criterion", options, index.criteria[number].name, set);
  }

  // Tables

  /*
   * A table that sorts by any column. `columns`: { title, below (small, under it), value (row → number, text or null),
   * format (value → text), cell (row → nodes, else the formatted value), kind ("number"), down (first sorted
   * downwards), header (row header), unsortable }. Rows without a value come last in either direction.
   */
  function table({ caption, columns, rows, sort = null, changed = null, rowClass = null, kind = "" }) {
    let state = sort;
    const body = h("tbody");
    const heads = columns.map((column, number) => {
      const inner = column.unsortable
        ? h("span.unsorted", column.title)
        : h(
            "button.sort",
            { type: "button", onclick: () => sortBy(number) },
            h("span", column.title, h("span.arrow", { "aria-hidden": "true" })),
            column.below ? h("small", column.below) : null,
          );
      return h("th", { scope: "col", class: column.kind }, inner);
    });
    const content = (column, row) => {
      if (column.cell) return column.cell(row);
      const value = column.value(row);
      return value === null ? "–" : (column.format ?? String)(value);
    };
    const makeCell = (row) => (column) => {
      const classes = [column.kind, column.cellClass?.(row)].filter(Boolean).join(" ") || null;
      const inner = content(column, row);
      return column.header ? h("th", { scope: "row", class: classes }, inner) : h("td", { class: classes }, inner);
    };
    const made = new Map(rows.map((row) => [row, h("tr", { class: rowClass?.(row) }, columns.map(makeCell(row)))]));

    function sortBy(number) {
      const again = state && state.column === number;
      state = { column: number, down: again ? !state.down : Boolean(columns[number].down) };
      order();
      changed?.(state);
    }

    function order() {
      let ordered = rows;
      if (state) {
        const { value } = columns[state.column];
        const sign = state.down ? -1 : 1;
        const known = rows.filter((row) => value(row) !== null);
        const unknown = rows.filter((row) => value(row) === null);
        known.sort((a, b) => sign * compare(value(a), value(b)));
        ordered = [...known, ...unknown];
      }
      heads.forEach((head, number) => {
        const on = state && state.column === number;
        head.toggleAttribute("aria-sort", false);
        if (on) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        const arrow = head.querySelector(".arrow");
        if (arrow) arrow.textContent = on ? (state.down ? " ↓" : " ↑") : "";
      });
      body.replaceChildren(...ordered.map((row) => made.get(row)));
      node.ordered = ordered;
    }

    const node = h(
      "div",
      { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": caption },
      h("table", h("caption.unseen", caption), h("thead", h("tr", heads)), body),
    );
    order();
    if (kind === "wide") widths.observe(node);
    return node;
  }

  // A table that fits needs no frame that scrolls: then its head stays in sight while the page scrolls.
  const fit = ({ target: node }) =>
    node.classList.toggle("fits", node.firstElementChild.offsetWidth <= node.clientWidth);
  const widths = new ResizeObserver((entries) => entries.forEach(fit));

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true, sensitivity: "base" });
  }

  const column = (title, value, more = {}) => ({ title, value, ...more });
  const numbers = (title, value, format = p.count, more = {}) => ({ title, kind: "number", value, format, ...more });
  const linkColumn = (title, name, link) => ({ title, header: true, kind: "name", value: name, cell: link });

  /** Columns of algorithms and datasets: `at` gives the number of a row's own. */
  const algorithmColumn = (at = (row) => row) => {
    const name = (row) => index.algorithms[at(row)].name;
    return linkColumn("Algorithm", name, (row) => algorithmLink(at(row)));
  };
  const datasetColumn = (at = (row) => row) => {
    const name = (row) => index.settings[at(row)].label;
    return linkColumn("Dataset", name, (row) => datasetLink(at(row)));
  };

  /** The column of means ± std with marks and links; a row has `cell`. */
  const meanColumn = (marks) => ({
    title: "Mean ± std (%)",
    kind: "number",
    down: true,
    value: ({ cell }) => cell.mean,
    cell: ({ cell }) => cellLink(...cell.at, meanText(cell), markNodes(marks(cell))),
  });
  const noteColumn = { title: "Note", kind: "long", value: ({ cell }) => cell.note };

  /** Something behind its title. */
  const folded = (title, ...content) => h("details.notes", h("summary", title), content);

  /** A list of (what, value). */
  const facts = (pairs) =>
    h(
      "dl.facts",
      pairs.map(([what, value]) => h("div", h("dt", what), h("dd", value))),
    );

  /** A node that is filled when a chunk has come. */
  function later(chunk, fillIn) {
    const place = h("div", { "aria-busy": "true" }, h("p.quiet", "Loading …"));
    const put = (nodes) => {
      place.replaceChildren(...nodes.flat(Infinity).filter(Boolean));
      place.setAttribute("aria-busy", "false");
    };
    p.load(chunk).then(
      (content) => put(fillIn(content)),
      (error) => put([h("p.wrong", error.message)]),
    );
    return place;
  }

  // Copying

  /** Copy text; an older way where the page's host does not allow the newer one. */
  async function copyText(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = h("textarea.unseen", { value: text });
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      if (!copied) {
        p.say("Copying is not allowed here");
        return false;
      }
    }
    p.say(`${what} copied`);
    return true;
  }

  function copyButton(name, props, what, make) {
    const button = h("button", { type: "button", ...props }, name);
    button.addEventListener("click", async () => {
      if (await copyText(make(), what)) {
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = name), 1500);
      }
    });
    return button;
  }

  /** Text to take away, with a button that copies it. */
  function code(text, what) {
    return h(
      "div.code",
      h("pre", { tabindex: 0, role: "region", "aria-label": what }, h("code", text)),
      copyButton("Copy", { class: "copy", "aria-label": `Copy ${what}` }, what, () => text),
    );
  }

  /** Escape text as plench/report/tables.py does: the index has its replacement of each character. */
  function escapeAs(format, text) {
    const replacements = new Map(index.escapes[format]);
    return Array.from(text, (character) => replacements.get(character) ?? character).join("");
  }

  /** A field of a CSV file; a name that a spreadsheet would run as a formula gets an apostrophe in front. */
  function escapeCsv(text) {
    const safe = text && index.escapes.formula.includes(text[0]) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  /** A way to show a cell of a table to copy, the best and the tied ones between these marks. */
  const showAs = (format, best, tied) => (cell) => {
    const [before, after] = cell.best ? best : cell.tied ? tied : ["", ""];
    return before + escapeAs(format, cell.text) + after;
  };

  /*
   * A table to copy: { caption, header: [text], rows: [[{ text, best, tied, figures }]], figureNames }, the first
   * column names. `figures` are the plain numbers of a cell, for CSV.
   */
  function asMarkdown({ caption, header, rows }) {
    const line = (cells) => `| ${cells.join(" | ")} |`;
    const show = showAs("Markdown", ["**", "**"], ["*", "*"]);
    return [
      line(header.map((name) => escapeAs("Markdown", name))),
      line(header.map((_, number) => (number ? "---:" : "---"))),
      ...rows.map((row) => line(row.map(show))),
      "",
      escapeAs("Markdown", caption),
      "",
    ].join("\n");
  }

  function asLatex({ caption, header, rows }) {
    const show = showAs("LaTeX", ["\\textbf{", "}"], ["\\underline{", "}"]);
    return [
      "% needs \\usepackage{booktabs}",
      "\\begin{table}",
      "\\centering",
      `\\caption{${escapeAs("LaTeX", caption)}}`,
      `\\begin{tabular}{l${"r".repeat(header.length - 1)}}`,
      "\\toprule",
      `${header.map((name) => escapeAs("LaTeX", name)).join(" & ")} \\\\`,
      "\\midrule",
      ...rows.map((row) => `${row.map(show).join(" & ")} \\\\`),
      "\\bottomrule",
      "\\end{tabular}",
      "\\end{table}",
      "",
    ].join("\n");
  }

  function asCsv({ header, rows, figureNames }) {
    const names = header.flatMap((name, column) =>
      column ? figureNames.map((part) => (part ? `${name} ${part}` : name)) : [name],
    );
    const fields = (row) =>
      row.flatMap((cell, column) =>
        column ? figureNames.map((_, number) => cell.figures?.[number] ?? "") : [escapeCsv(cell.text)],
      );
    return [names.map(escapeCsv), ...rows.map(fields), ""].map((row) => (row ? row.join(",") : "")).join("\n");
  }

  const FORMATS = { Markdown: asMarkdown, LaTeX: asLatex, CSV: asCsv };

  /** Buttons that copy the table that `make()` returns in each format. */
  function copyButtons(make) {
    return h(
      "div.copies",
      { role: "group", "aria-label": "Copy this table" },
      h("span", "Copy as"),
      Object.entries(FORMATS).map(([name, render]) =>
        copyButton(name, {}, `Table as ${name}`, () => render(make())),
      ),
    );
  }

  Object.assign(p, { useIndex, findCell, withCell, readCriterion, cellLink, algorithmLink, datasetLink });
  Object.assign(p, { rankValues, rankCells, isBelowChance, cellMarks, markNodes, MARKS, meanText, rankText });
  Object.assign(p, { choice, select, several, criterionChoice, facts, folded, later, code });
  Object.assign(p, { table, compare, column, numbers, algorithmColumn, datasetColumn, meanColumn, noteColumn });
  Object.assign(p, { escapeAs, escapeCsv, copyButtons });
})();
