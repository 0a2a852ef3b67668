// The criteria: what choosing without true labels costs.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const SHAPES = ["circle", "square", "triangle", "diamond", "down"];
  const SHOWS = [
    ["regret", "Regret"],
    ["accuracy", "Accuracy"],
  ];

  function showCriteria(query) {
    const needs = (entry) => (entry.labels ? "Needs true labels." : "Needs no true labels.");
    return [
      h("h1", "Criteria"),
      h("p.lead", "How well can a model be chosen without true labels, and what does it cost?"),
      p.facts(p.index.criteria.map((entry) => [entry.title, `${entry.meaning} ${needs(entry)}`])),
      p.later("criteria", (data) => details(data, query)),
    ];
  }

  function details(data, query) {
    if (!data.curves.length)
      return [
        h("p", "No dataset here has true labels in its test set: regret and rank correlation cannot be measured."),
      ];
    const table = (by, first) => qualityTable(by, data.tables.find((entry) => entry.by === by).rows, first);
    const everything = p.column("Over", () => "all experiments", { header: true, kind: "name" });
    return [
      h("h2", "Over everything"),
      table("all", everything),
      h(
        "p.quiet",
        "Regret: test accuracy, in points, that is lost compared with OA w/ ES, the reference, on the same splits. Below 0 the criterion did better: OA w/ ES chooses on a small validation set, too. ρ: Spearman's rank correlation of the criterion and test accuracy over the configurations of a split. Means over experiments (one algorithm on one dataset).",
      ),
      h("h2", "By number of configurations tried"),
      numberTried(data, query),
      h("h2", "By dataset"),
      table("dataset", p.datasetColumn()),
      h("h2", "By algorithm"),
      table("algorithm", p.algorithmColumn()),
    ];
  }

  function qualityTable(by, rows, first) {
    const most = (row) =>
      Math.max(...rows[row].filter(Boolean).map((entry) => Math.max(entry.n_regret, entry.n_correlation)));
    // A figure, with the number of experiments where it is over fewer than others of its row.
    const figure = (title, c, key, n, format, more) => {
      const value = (row) => rows[row][c]?.[key] ?? null;
      const whole = (row) => (rows[row][c][n] < most(row) ? ` (of ${rows[row][c][n]})` : "");
      const cell = (row) => (value(row) === null ? "–" : format(value(row)) + whole(row));
      return { ...p.numbers(title, value), cell, ...more };
    };
    const rho = (value) => p.fixed(value, 2);
    const columns = p.index.criteria.flatMap(({ title, reference }, c) => [
      ...(reference ? [] : [figure(`${title} regret`, c, "regret", "n_regret", p.percent)]),
      figure(`${title} ρ`, c, "rank_correlation", "n_correlation", rho, { down: true }),
    ]);
    return p.table({
      caption: `Regret and rank correlation, ${by === "all" ? "over everything" : `by ${by}`}`,
      columns: [first, p.numbers("Experiments", most), ...columns],
      rows: rows.map((_, number) => number).filter((number) => rows[number].some(Boolean)),
      kind: by === "algorithm" ? "wide" : "",
    });
  }

  function numberTried(data, query) {
    const labels = data.curves.map(({ setting }) => (setting === null ? "" : p.index.settings[setting].label));
    const asked = query.get("dataset") ?? "";
    const place = h("div");
    const view = {
      dataset: labels.includes(asked) ? asked : "",
      show: query.get("show") === "accuracy" ? "accuracy" : "regret",
    };
    const draw = () => place.replaceChildren(...curveParts(data.curves[labels.indexOf(view.dataset)], view.show));
    const set = (key) => (value) => {
      view[key] = value;
      p.keepAddress("criteria", { dataset: view.dataset, show: view.show === "regret" ? null : view.show });
      draw();
    };
    draw();
    const options = labels.map((label) => [label, label || "all datasets"]);
    const controls = h(
      "div.controls",
      p.select("Datasets", options, view.dataset, set("dataset")),
      p.choice("Show", "curve", SHOWS, view.show, set("show")),
    );
    return h("div", controls, place);
  }

  function curveParts(curve, show) {
    const { criteria } = p.index;
    const isRegret = show === "regret";
    const all = isRegret ? curve.regrets : curve.accuracies;
    const most = all[0].length;
    const shown = criteria
      .map(({ title, reference }, c) => ({ title, reference, values: all[c], kind: `series${c % 5}`, shape: SHAPES[c % 5] }))
      .filter(({ reference }) => !isRegret || !reference);
    const tell = (k) => shown.map(({ title, values }) => `${title} ${p.percent(values[k])}`).join(", ");
    const what = isRegret ? "Regret in points" : "Test accuracy in %";
    const left = curve.n_left_out
      ? ` ${p.plural(curve.n_left_out, "experiment")} with fewer configurations ${curve.n_left_out === 1 ? "is" : "are"} left out.`
      : "";
    const flat = shown.flatMap(({ values }) => values.map((value) => 100 * value));
    const figure = p.figure({
      title: `${what} by the number of configurations tried`,
      words: `Expected over all ways to try k of the stored configurations, computed exactly; mean over ${p.plural(curve.n_experiments, "experiment")}.${left} With 1: ${tell(0)}. With ${most}: ${tell(most - 1)}.`,
      extra: p.legend(shown.map(({ title, kind, shape }) => ({ kind, shape, line: true, text: title }))),
      draw: (width) => {
        const [low, high] = [Math.min(...flat, isRegret ? 0 : Infinity), Math.max(...flat)];
        const room = (high - low || 1) * 0.08;
        const label = isRegret ? "regret (points)" : "test accuracy (%)";
        const frame = p.axes({
          width,
          height: 300,
          x: { range: [1, Math.max(most, 2)], label: "configurations tried", ticks: tickNumbers(most, width) },
          y: { range: [low - room, high + room], label, zero: isRegret },
        });
        for (const { title, values, kind, shape } of shown) {
          const points = values.map((value, k) => [k + 1, 100 * value]);
          frame.line(kind, points);
          for (const [k, value] of points)
            frame.mark(k, value, { kind, shape, size: 3.2, title: `${title}, ${k}: ${p.fixed(value, 2)}` });
        }
        return frame.svg;
      },
    });
    const columns = [
      p.numbers("Configurations tried", (k) => k, (k) => String(k + 1), { header: true }),
      ...shown.map(({ title, values }) => p.numbers(title, (k) => values[k], p.percent)),
    ];
    const table = p.table({ caption: what, columns, rows: [...all[0].keys()] });
    return [figure, p.folded("These curves as a table", table)];
  }

  function tickNumbers(most, width) {
    const all = Array.from({ length: most }, (_, k) => k + 1);
    return most > 8 && width < 600 ? all.filter((k) => k === 1 || k % 5 === 0) : all;
  }

  p.pages.criteria = { title: () => "Criteria", show: showCriteria };
})();
