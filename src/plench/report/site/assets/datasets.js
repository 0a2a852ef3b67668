// Datasets: what they are, their candidate sets, and how the algorithms do on them.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  const MOST_IN_TABLE = 30;

  function showList() {
    const { index } = p;
    return [
      p.heading("Datasets"),
      p.table({
        caption: "Datasets",
        rows: index.settings.map((_, number) => number),
        columns: [
          {
            title: "Dataset",
            header: true,
            kind: "name",
            value: (row) => index.settings[row].label,
            cell: (row) => p.datasetLink(row),
          },
          {
            title: "Classes",
            kind: "number",
            value: (row) => index.settings[row].chance,
            cell: (row) =>
              index.settings[row].chance === null ? "–" : String(Math.round(1 / index.settings[row].chance)),
          },
          { title: "Network", value: (row) => index.settings[row].model, cell: (row) => index.settings[row].model },
          {
            title: "Steps",
            kind: "number",
            value: (row) => index.settings[row].steps,
            cell: (row) => (index.settings[row].steps === null ? "–" : p.count(index.settings[row].steps)),
          },
          {
            title: "Algorithms",
            kind: "number",
            value: (row) => covered(row).length,
            cell: (row) => String(covered(row).length),
          },
          {
            title: "True labels",
            value: (row) => String(index.settings[row].labelled),
            cell: (row) => (index.settings[row].labelled ? "yes" : "no: ranked by the criterion itself"),
          },
        ],
      }),
    ];
  }

  const covered = (setting) =>
    p.index.algorithms.map((_, number) => number).filter((number) => p.findCell(setting, number, 0));

  function showDataset(query) {
    const setting = p.index.settingAt.get(query.get("name"));
    if (setting === undefined) return p.absent("This page has no such dataset.");
    const criterion = p.readCriterion(query);
    const { label, labelled } = p.index.settings[setting];
    return [
      p.heading(label),
      p.later(`dataset-${setting}`, (data) => about(data)),
      h("h2", {}, "Results"),
      p.criterionChoice(
        criterion,
        (number) => (location.hash = p.address("dataset", { name: label, criterion: p.index.criteria[number].name })),
      ),
      labelled
        ? null
        : h(
            "p",
            { class: "warning" },
            `No true labels are known: the figures are ${p.index.criteria[criterion].title} itself, not accuracies.`,
          ),
      results(setting, criterion),
    ];
  }

  function about(data) {
    const cards = [
      ["Sizes", data.sizes],
      ["Candidate sets", data.candidates],
      ["In the paper's table", data.published],
      ["Card", data.card],
      ["Protocol", data.experiment],
    ];
    return [
      h(
        "div",
        { class: "cards" },
        cards
          .filter(([, pairs]) => pairs.length)
          .map(([title, pairs]) => h("section", {}, h("h2", {}, title), p.facts(pairs))),
      ),
      candidates(data),
    ].flat();
  }

  function candidates(data) {
    const { measured } = data;
    if (!measured)
      return [
        h(
          "p",
          { class: "quiet" },
          "The flipping matrix is measured on data, not on records: write the page with --data-dir to have it here.",
        ),
      ];
    const most = Math.max(...measured.sizes.map(([, n]) => n));
    const sizes = p.table({
      caption: "Sizes of candidate sets",
      rows: measured.sizes,
      columns: [
        { title: "Candidates", header: true, kind: "number", value: (row) => row[0], cell: (row) => String(row[0]) },
        { title: "Examples", kind: "number", down: true, value: (row) => row[1], cell: (row) => p.count(row[1]) },
        { title: "", unsortable: true, kind: "barcell", cell: (row) => bar(row[1] / most) },
      ],
    });
    const told = [
      `${p.plural(measured.examples, "example")}, ${p.fixed(measured.mean_size, 2)} candidates each on average${measured.noise === null ? "" : `; the true label is missing from ${p.percent(measured.noise)} % of the sets`}.`,
    ];
    return [
      h("h2", {}, "Candidate sets, measured"),
      h("p", {}, told),
      h(
        "div",
        { class: "pair" },
        sizes,
        measured.flipping
          ? flipping(data)
          : h("p", { class: "quiet" }, "Without true labels there is no flipping matrix."),
      ),
    ];
  }

  function bar(share) {
    const svg = s("svg", { class: "chart bar", width: 160, height: 12, viewBox: "0 0 160 12", "aria-hidden": "true" });
    svg.append(s("rect", { class: "barfill", x: 0, y: 2, width: Math.max(1, 160 * share), height: 8 }));
    return svg;
  }

  const shade = (node, share) => {
    node.style.backgroundColor = `color-mix(in srgb, var(--accent) ${Math.round(45 * share)}%, transparent)`;
    return node;
  };

  /** p(j is a candidate | the label is i): a table for few classes, the largest entries for many. */
  function flipping(data) {
    const { flipping: matrix, counts, degree, pair } = data.measured;
    const name = (number) => data.classes?.[number] ?? String(number);
    const heading = [
      h("h3", {}, "Flipping matrix"),
      h(
        "p",
        { class: "quiet" },
        `Share of the examples of a class (row) whose candidate set contains another class (column), in %.${pair ? ` Largest off the diagonal: ${p.percent(degree, 1)} % of the examples of ${name(pair[0])} have ${name(pair[1])} among their candidates (the ambiguity degree).` : ""}`,
      ),
    ];
    if (matrix.length <= MOST_IN_TABLE) {
      return h(
        "div",
        {},
        heading,
        h(
          "div",
          { class: "scroll", tabindex: 0, role: "region", "aria-label": "Flipping matrix" },
          h(
            "table",
            { class: "matrix" },
            h("caption", { class: "unseen" }, "Flipping matrix in percent"),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", { scope: "col" }, "label"),
                matrix.map((_, column) => h("th", { scope: "col" }, name(column))),
              ),
            ),
            h(
              "tbody",
              {},
              matrix.map((row, number) =>
                h(
                  "tr",
                  {},
                  h("th", { scope: "row" }, name(number)),
                  row.map((value) =>
                    value === null ? h("td", {}, "–") : shade(h("td", {}, p.percent(value, 0)), value),
                  ),
                ),
              ),
            ),
          ),
        ),
      );
    }
    const pairs = matrix
      .flatMap((row, i) => row.map((value, j) => [i, j, value]))
      .filter(([i, j, value]) => i !== j && value !== null)
      .sort((a, b) => b[2] - a[2])
      .slice(0, 40);
    return h(
      "div",
      {},
      heading,
      h(
        "p",
        {},
        `${matrix.length} classes are too many for a table: these are the ${pairs.length} largest entries off the diagonal.`,
      ),
      p.table({
        caption: "Largest flipping probabilities",
        rows: pairs,
        columns: [
          { title: "Label", header: true, value: (row) => row[0], cell: (row) => name(row[0]) },
          {
            title: "Examples",
            kind: "number",
            down: true,
            value: (row) => counts[row[0]],
            cell: (row) => p.count(counts[row[0]]),
          },
          { title: "Candidate", value: (row) => row[1], cell: (row) => name(row[1]) },
          {
            title: "Share (%)",
            kind: "number",
            down: true,
            value: (row) => row[2],
            cell: (row) => p.percent(row[2], 1),
          },
        ],
      }),
    );
  }

  function results(setting, criterion) {
    const rows = covered(setting).map((algorithm) => ({ algorithm, cell: p.findCell(setting, algorithm, criterion) }));
    const known = rows.filter(({ cell }) => cell.mean !== null);
    const range = p.robustRange(
      known.flatMap(({ cell }) => [cell.mean - (cell.std ?? 0), cell.mean + (cell.std ?? 0)]),
      0.04,
    );
    range[0] = Math.max(0, range[0]);
    range[1] = Math.min(1, range[1]);
    const { chance } = p.index.settings[setting];
    const best = known.reduce((top, { cell }) => (top && top.mean >= cell.mean ? top : cell), null);
    const width = 260;
    const X = p.scale(...range, 6, width - 6);
    const draw = ({ cell }) => {
      if (cell.mean === null) return "";
      const svg = s("svg", {
        class: "chart strip",
        width,
        height: 18,
        viewBox: `0 0 ${width} 18`,
        "aria-hidden": "true",
      });
      const box = { left: 6, right: width - 6, top: 0, bottom: 18 };
      const clip = (value) => Math.min(box.right, Math.max(box.left, X(value)));
      if (chance !== null && chance > range[0] && chance < range[1])
        svg.append(s("line", { class: "zero", x1: X(chance), x2: X(chance), y1: 0, y2: 18 }));
      if (cell.std !== null)
        svg.append(
          s("line", { class: "whisker", x1: clip(cell.mean - cell.std), x2: clip(cell.mean + cell.std), y1: 9, y2: 9 }),
        );
      for (const [, value] of cell.splits)
        if (value !== null) svg.append(p.mark({ x: X(value), y: 9, box, size: 2, kind: "faint" }));
      svg.append(
        p.mark({
          x: X(cell.mean),
          y: 9,
          box,
          size: 4,
          kind: cell === best ? "chosen" : "plainpoint",
          shape: cell === best ? "diamond" : "circle",
        }),
      );
      return svg;
    };
    const marks = (cell) =>
      [
        cell === best ? "best" : cell.mean !== null && best && p.isWithin(cell, best) ? "tied" : null,
        chance !== null && p.index.settings[setting].labelled && cell.mean !== null && cell.mean < chance
          ? "chance"
          : null,
        cell.diverged ? "diverged" : null,
        cell.lacking ? "lacking" : null,
      ].filter(Boolean);
    return [
      p.table({
        caption: "Results on this dataset",
        rows,
        sort: { column: 1, down: true },
        columns: [
          {
            title: "Algorithm",
            header: true,
            kind: "name",
            value: (row) => p.index.algorithms[row.algorithm].name,
            cell: (row) => p.algorithmLink(row.algorithm),
          },
          {
            title: "Mean ± std (%)",
            kind: "number",
            down: true,
            value: (row) => row.cell.mean,
            cell: (row) =>
              p.cellLink(
                setting,
                row.algorithm,
                criterion,
                row.cell.mean === null
                  ? "–"
                  : `${p.percent(row.cell.mean)}${row.cell.std === null ? "" : ` ± ${p.percent(row.cell.std)}`}`,
                p.markNodes(marks(row.cell)),
              ),
          },
          { title: "Splits", kind: "number", value: (row) => row.cell.n, cell: (row) => String(row.cell.n) },
          { title: "Mean, ± std, and splits", unsortable: true, kind: "stripcell", cell: draw },
          { title: "Note", kind: "long", value: (row) => row.cell.note, cell: (row) => row.cell.note },
        ],
      }),
      h(
        "p",
        { class: "quiet" },
        `Drawn: the mean (● or ◆ the best), one standard deviation, and each split, between ${p.percent(range[0], 1)} and ${p.percent(range[1], 1)} %; an arrow is a value beyond that${chance !== null && chance > range[0] && chance < range[1] ? "; the broken line is chance" : ""}.`,
      ),
    ];
  }

  p.pages.datasets = { title: () => "Datasets", show: showList };
  p.pages.dataset = { title: (query) => query.get("name"), show: showDataset };
})();
