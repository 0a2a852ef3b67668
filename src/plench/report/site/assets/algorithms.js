// Algorithms: idea, objective, cost, sensitivity to hyperparameters, results.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const settingsOf = (algorithm) => p.withCell(p.index.settings, (setting) => p.findCell(setting, algorithm, 0));

  function showList() {
    const { algorithms, settings } = p.index;
    const table = p.table({
      caption: "Algorithms",
      rows: algorithms.map((_, number) => number),
      columns: [
        p.algorithmColumn(),
        p.column("Family", (row) => algorithms[row].family),
        p.column("Venue", (row) => algorithms[row].venue),
        p.column("Budget", (row) => algorithms[row].budget),
        p.numbers("Datasets", (row) => settingsOf(row).length, (n) => `${n} of ${settings.length}`),
      ],
    });
    return [h("h1", "Algorithms"), table];
  }

  function showAlgorithm(query) {
    const { index } = p;
    const algorithm = index.algorithmAt.get(query.get("name"));
    if (algorithm === undefined) return p.absent("This page has no such algorithm.");
    const criterion = p.readCriterion(query);
    const { name } = index.algorithms[algorithm];
    const other = index.algorithms.find((entry) => entry.name !== name)?.name;
    const pair = { a: name, b: other, criterion: index.criteria[criterion].name };
    return [
      h("h1", name),
      h("p", h("a", { href: p.address("compare", pair) }, "Compare with another")),
      p.later(`algorithm-${algorithm}`, about),
      h("h2", "Results"),
      p.criterionChoice(
        criterion,
        (_, chosen) => (location.hash = p.address("algorithm", { name, criterion: chosen })),
      ),
      results(algorithm, criterion),
      p.later(`algorithm-${algorithm}`, (data) => [
        cost(data),
        sensitivity(data, criterion),
        data.bibtex ? [h("h2", "Citation"), p.code(data.bibtex, "the BibTeX entry")] : null,
      ]),
    ];
  }

  function about(data) {
    return [
      data.idea ? h("p.lead", data.idea) : null,
      data.objective ? h("p.formula", formula(data.objective)) : null,
      data.card.length ? p.facts(data.card) : h("p.quiet", "Its records have no card."),
      data.hyperparameters.length
        ? p.table({
            caption: "Hyperparameters of its own",
            rows: data.hyperparameters,
            columns: [
              p.column("Hyperparameter", (row) => row[0], { header: true, format: (name) => h("code", name) }),
              p.column("Default", (row) => row[1]),
              p.column("Searched", (row) => row[2]),
              p.column("Meaning", (row) => row[3], { kind: "long", unsortable: true }),
            ],
          })
        : null,
    ];
  }

  /** A formula as the docstrings write it: x_i and x_{ij} are subscripts, x^2 superscripts, `name` is code. */
  function formula(text) {
    const parts = [""];
    for (let at = 0; at < text.length; ) {
      const code = /^`([^`]*)`/.exec(text.slice(at));
      const [inner, next] = at && /[_^]/.test(text[at]) && /\S/.test(text[at - 1]) ? raised(text, at + 1) : ["", 0];
      if (code) {
        parts.push(h("code", code[1]), "");
        at += code[0].length;
      } else if (inner) {
        parts.push(h(text[at] === "_" ? "sub" : "sup", formula(inner)), "");
        at = next;
      } else {
        parts[parts.length - 1] += text[at];
        at += 1;
      }
    }
    return parts;
  }

  /** What a sign at `start - 1` raises or lowers, in braces or a word, and where it ends. */
  function raised(text, start) {
    if (text[start] === "{") {
      let depth = 0;
      for (let at = start; at < text.length; at++) {
        if (text[at] === "{") depth += 1;
        if (text[at] === "}" && --depth === 0) return [text.slice(start + 1, at), at + 1];
      }
      return ["", start];
    }
    const found = /^[\p{L}\p{N}]+(\.\d+)?/u.exec(text.slice(start));
    return found ? [found[0], start + found[0].length] : ["", start];
  }

  function results(algorithm, criterion) {
    const everybody = p.index.algorithms.map((_, number) => number);
    const rows = settingsOf(algorithm).map((setting) => {
      const cell = p.findCell(setting, algorithm, criterion);
      const { rank, of } = p.rankCells(setting, everybody, criterion);
      return { setting, cell, rank: rank(cell), of };
    });
    return p.table({
      caption: "Results by dataset",
      rows,
      columns: [
        p.datasetColumn((row) => row.setting),
        p.meanColumn(p.cellMarks),
        {
          ...p.numbers("Rank", (row) => row.rank),
          cell: (row) => (row.rank === null ? "–" : `${p.rankText(row.rank)} of ${row.of}`),
        },
        p.numbers("Regret (points)", (row) => row.cell.regret, p.percent),
        p.noteColumn,
      ],
    });
  }

  function cost(data) {
    const rows = data.cost.filter(([, n]) => n);
    const ofRuns = p.table({
      caption: "Cost of its runs",
      rows,
      columns: [
        p.datasetColumn((row) => row[0]),
        p.numbers("Runs", (row) => row[1]),
        p.numbers("Step (ms)", (row) => row[2], (seconds) => p.short(1000 * seconds)),
        p.numbers("Training", (row) => row[3], p.duration),
        p.numbers("Peak memory (GB)", (row) => row[4], p.short),
      ],
    });
    const measured = p.table({
      caption: "A step, measured",
      rows: data.measured,
      columns: [
        p.column("Dataset", (row) => row[0], { header: true }),
        p.numbers("Step (ms)", (row) => row[1], p.short),
        p.numbers("Times the baseline", (row) => (row[2] ? row[1] / row[2] : null), (ratio) => p.fixed(ratio, 2)),
        p.numbers("Memory (MB)", (row) => row[3], p.short),
      ],
    });
    const told =
      "Medians over its finished runs, as their machines took them: compare them within one machine only.";
    return [
      rows.length ? [h("h2", "Cost"), h("p.quiet", told), ofRuns] : null,
      data.measured.length ? [h("h3", "A step, measured"), measured] : null,
    ];
  }

  function sensitivity(data, criterion) {
    const panels = data.sensitivity[criterion];
    if (!panels.length) return [];
    return [
      h("h2", "Sensitivity"),
      h(
        "p.quiet",
        `Every configuration of every split: its test accuracy at the checkpoint that ${p.index.criteria[criterion].title} picks, less the mean of its dataset and split, so that datasets can be shown together.`,
      ),
      p.legend([
        { kind: "plainpoint", shape: "circle", text: "drawn configuration" },
        { kind: "series3", shape: "diamond", text: "default configuration" },
        { kind: "chosen", line: true, text: "median of a value or a quarter of the points" },
      ]),
      h("div.pair", panels.map(panel)),
    ];
  }

  function named(value) {
    if (Array.isArray(value)) return value.map(p.short).join(" to ");
    return p.short(Number.isFinite(Number(value)) && value !== "" ? Number(value) : value);
  }

  /** The axis of a hyperparameter: its values side by side, or its range. */
  function axisOf({ name, categories, points, log }) {
    if (categories) {
      const format = (tick) => named(categories[tick]).slice(0, 12);
      return { range: [-0.6, categories.length - 0.4], label: name, ticks: [...categories.keys()], format };
    }
    const xs = points.map((point) => point[0]);
    const [low, high] = [Math.min(...xs), Math.max(...xs)];
    const room = (high - low) * 0.04;
    return { range: log ? [low / 1.3, high * 1.3] : [low - room, high + room], label: name, log };
  }

  function panel(entry) {
    const ys = entry.points.map((point) => 100 * point[1]);
    const range = p.robustRange(ys, 0.08);
    const outside = ys.filter((y) => y < range[0] || y > range[1]).length;
    const bins = entry.bins.map(([value, , n, middle]) => `${named(value)}: ${p.points(middle, 1)} (${n})`).join("; ");
    const correlation = (entry.rho ?? null) === null ? "" : `Rank correlation ${p.fixed(entry.rho, 2)}. `;
    const by = entry.categories ? "value" : "quarter";
    return p.figure({
      title: entry.name,
      words: `${correlation}Median difference in points, by ${by} (number of points): ${bins}.`,
      extra: p.outsideNote(outside ? [p.plural(outside, "point")] : []),
      draw: (width) => {
        const y = { range, label: "difference (points)", zero: true };
        const frame = p.axes({ width, height: 230, x: axisOf(entry), y });
        entry.points.forEach(([value, difference, isDefault], number) => {
          const spread = entry.categories ? (((number * 0.618) % 1) - 0.5) * 0.5 : 0;
          const look = isDefault
            ? { size: 3.6, kind: "series3", shape: "diamond" }
            : { size: 2.4, kind: "plainpoint faintpoint" };
          frame.mark(value + spread, 100 * difference, look);
        });
        const medians = entry.bins.map(([, at, , middle]) => [at, 100 * middle]);
        if (!entry.categories) frame.line("chosen", medians);
        else for (const [at, y] of medians) frame.line("chosen", [[at - 0.32, y], [at + 0.32, y]]);
        return frame.svg;
      },
    });
  }

  p.pages.algorithms = { title: () => "Algorithms", show: showList };
  p.pages.algorithm = { title: (query) => query.get("name"), show: showAlgorithm };
})();
