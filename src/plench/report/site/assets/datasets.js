// Datasets: what they are, their candidate sets, and how the algorithms do on them.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  const MOST_IN_TABLE = 30;
  const MOST_PAIRS = 40;

  const algorithmsOf = (setting) =>
    p.withCell(p.index.algorithms, (algorithm) => p.findCell(setting, algorithm, 0));

  function showList() {
    const { settings } = p.index;
    const table = p.table({
      caption: "Datasets",
      rows: settings.map((_, number) => number),
      columns: [
        p.datasetColumn(),
        p.numbers("Classes", (row) => settings[row].classes),
        p.column("Network", (row) => settings[row].model),
        p.numbers("Steps", (row) => settings[row].steps),
        p.numbers("Algorithms", (row) => algorithmsOf(row).length),
        p.column("True labels", (row) => (settings[row].labelled ? "yes" : "no: ranked by the criterion itself")),
      ],
    });
    return [h("h1", "Datasets"), table];
  }

  function showDataset(query) {
    const setting = p.index.settingAt.get(query.get("name"));
    if (setting === undefined) return p.absent("This page has no such dataset.");
    const criterion = p.readCriterion(query);
    const { label, labelled } = p.index.settings[setting];
    const { title } = p.index.criteria[criterion];
    return [
      h("h1", label),
      p.later(`dataset-${setting}`, about),
      h("h2", "Results"),
      p.criterionChoice(
        criterion,
        (_, name) => (location.hash = p.address("dataset", { name: label, criterion: name })),
      ),
      labelled
        ? null
        : h("p.warning", `No true labels are known: the figures are ${title} itself, not accuracies.`),
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
    ].filter(([, pairs]) => pairs.length);
    return [
      h(
        "div.cards",
        cards.map(([title, pairs]) => h("section", h("h2", title), p.facts(pairs))),
      ),
      candidates(data),
    ];
  }

  function candidates(data) {
    const { measured } = data;
    if (!measured) {
      const remedy = "write the page with --data-dir to have it here.";
      return h("p.quiet", `The flipping matrix is measured on data, not on records: ${remedy}`);
    }
    const most = Math.max(...measured.sizes.map(([, n]) => n));
    const sizes = p.table({
      caption: "Sizes of candidate sets",
      rows: measured.sizes,
      columns: [
        p.numbers("Candidates", (row) => row[0], String, { header: true }),
        p.numbers("Examples", (row) => row[1], p.count, { down: true }),
        { title: "", unsortable: true, kind: "barcell", cell: (row) => bar(row[1] / most) },
      ],
    });
    const noise =
      measured.noise === null ? "" : `; the true label is missing from ${p.percent(measured.noise)} % of the sets`;
    const size = `${p.fixed(measured.mean_size, 2)} candidates each on average`;
    return [
      h("h2", "Candidate sets, measured"),
      h("p", `${p.plural(measured.examples, "example")}, ${size}${noise}.`),
      h(
        "div.pair",
        sizes,
        measured.flipping
          ? h("div", flipping(data))
          : h("p.quiet", "Without true labels there is no flipping matrix."),
      ),
    ];
  }

  function bar(share) {
    return s(
      "svg.chart.bar",
      { width: 160, height: 12, viewBox: "0 0 160 12", "aria-hidden": "true" },
      s("rect.barfill", { x: 0, y: 2, width: Math.max(1, 160 * share), height: 8 }),
    );
  }

  /** p(j is a candidate | the label is i): a table for few classes, the largest entries for many. */
  function flipping(data) {
    const { flipping: matrix, counts, degree, pair } = data.measured;
    const name = (number) => data.classes?.[number] ?? String(number);
    const largest = pair
      ? ` Largest off the diagonal: ${p.percent(degree, 1)} % of the examples of ${name(pair[0])} have ${name(pair[1])} among their candidates (the ambiguity degree).`
      : "";
    const heading = [
      h("h3", "Flipping matrix"),
      h(
        "p.quiet",
        `Share of the examples of a class (row) whose candidate set contains another class (column), in %.${largest}`,
      ),
    ];
    if (matrix.length <= MOST_IN_TABLE) return [heading, matrixTable(matrix, name)];
    const pairs = matrix
      .flatMap((row, i) => row.map((value, j) => [i, j, value]))
      .filter(([i, j, value]) => i !== j && value !== null)
      .sort((a, b) => b[2] - a[2])
      .slice(0, MOST_PAIRS);
    return [
      heading,
      h(
        "p",
        `${matrix.length} classes are too many for a table: these are the ${pairs.length} largest entries off the diagonal.`,
      ),
      p.table({
        caption: "Largest flipping probabilities",
        rows: pairs,
        columns: [
          p.column("Label", (row) => row[0], { header: true, format: name }),
          p.numbers("Examples", (row) => counts[row[0]], p.count, { down: true }),
          p.column("Candidate", (row) => row[1], { format: name }),
          p.numbers("Share (%)", (row) => row[2], (share) => p.percent(share, 1), { down: true }),
        ],
      }),
    ];
  }

  function matrixTable(matrix, name) {
    const shaded = (value) => {
      const node = h("td", value === null ? "–" : p.percent(value, 0));
      const share = Math.round(45 * (value ?? 0));
      node.style.backgroundColor = `color-mix(in srgb, var(--accent) ${share}%, transparent)`;
      return node;
    };
    const head = matrix.map((_, column) => h("th", { scope: "col" }, name(column)));
    const rows = matrix.map((row, number) => h("tr", h("th", { scope: "row" }, name(number)), row.map(shaded)));
    return h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": "Flipping matrix" },
      h(
        "table.matrix",
        h("caption.unseen", "Flipping matrix in percent"),
        h("thead", h("tr", h("th", { scope: "col" }, "label"), head)),
        h("tbody", rows),
      ),
    );
  }

  function results(setting, criterion) {
    const { chance } = p.index.settings[setting];
    const algorithms = algorithmsOf(setting);
    const ranked = p.rankCells(setting, algorithms, criterion);
    const rows = algorithms.map((algorithm) => ({ algorithm, cell: p.findCell(setting, algorithm, criterion) }));
    const known = rows.map(({ cell }) => cell).filter((cell) => cell.mean !== null);
    const spread = known.flatMap(({ mean, std }) => [mean - (std ?? 0), mean + (std ?? 0)]);
    const [low, high] = p.robustRange(spread, 0.04);
    const range = [Math.max(0, low), Math.min(1, high)];
    const chanceShown = chance !== null && chance > range[0] && chance < range[1] ? chance : null;
    const edges = `between ${p.percent(range[0], 1)} and ${p.percent(range[1], 1)} %`;
    return [
      p.table({
        caption: "Results on this dataset",
        rows,
        sort: { column: 1, down: true },
        columns: [
          p.algorithmColumn((row) => row.algorithm),
          p.meanColumn((cell) => p.cellMarks(cell, ranked)),
          p.numbers("Splits", (row) => row.cell.n),
          {
            title: "Mean, ± std, and splits",
            unsortable: true,
            kind: "stripcell",
            cell: ({ cell }) => (cell.mean === null ? "" : strip(cell, range, chanceShown, cell === ranked.best)),
          },
          p.noteColumn,
        ],
      }),
      h(
        "p.quiet",
        `Drawn: the mean (● or ◆ the best), one standard deviation, and each split, ${edges}; an arrow is a value beyond that${chanceShown === null ? "" : "; the broken line is chance"}.`,
      ),
    ];
  }

  /** A cell's mean, deviation and splits in a row of the table. */
  function strip({ mean, std, splits }, range, chance, best) {
    const [width, height] = [260, 18];
    const box = { left: 6, right: width - 6, top: 0, bottom: height };
    const X = p.scale(...range, box.left, box.right);
    const clip = (value) => Math.min(box.right, Math.max(box.left, X(value)));
    const look = best ? { kind: "chosen", shape: "diamond" } : { kind: "plainpoint" };
    return s(
      "svg.chart.strip",
      { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      chance === null ? null : s("line.zero", { x1: X(chance), x2: X(chance), y1: 0, y2: height }),
      std === null ? null : s("line.whisker", { x1: clip(mean - std), x2: clip(mean + std), y1: 9, y2: 9 }),
      splits
        .filter(([, value]) => value !== null)
        .map(([, value]) => p.mark({ x: X(value), y: 9, box, size: 2, kind: "faint" })),
      p.mark({ x: X(mean), y: 9, box, size: 4, ...look }),
    );
  }

  p.pages.datasets = { title: () => "Datasets", show: showList };
  p.pages.dataset = { title: (query) => query.get("name"), show: showDataset };
})();
