// The criteria: what choosing without true labels costs.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  const SHAPES = ["circle", "square", "triangle", "diamond", "down"];

  function showCriteria(query) {
    const { index } = p;
    return [
      p.heading(
        "Criteria",
        h("p", { class: "lead" }, "How well can a model be chosen without true labels, and what does it cost?"),
      ),
      p.facts(
        index.criteria.map((entry) => [
          entry.title,
          `${entry.meaning} ${entry.labels ? "Needs true labels." : "Needs no true labels."}`,
        ]),
      ),
      p.later("criteria", (data) => details(data, query)),
    ];
  }

  function details(data, query) {
    if (!data.curves.length)
      return [
        h("p", {}, "No dataset here has true labels in its test set: regret and rank correlation cannot be measured."),
      ];
    const everything = data.tables.find((table) => table.by === "all");
    return [
      h("h2", {}, "Over everything"),
      qualityTable("all", everything.rows, () => "all experiments"),
      h(
        "p",
        { class: "quiet" },
        "Regret: test accuracy, in points, that is lost against OA w/ ES, the reference, on the same splits. Below 0 the criterion did better: OA w/ ES chooses on a small validation set, too. ρ: Spearman's rank correlation of the criterion and test accuracy over the configurations of a split. Means over experiments (one algorithm on one dataset).",
      ),
      h("h2", {}, "By number of configurations tried"),
      numberTried(data, query),
      ...["dataset", "algorithm"].map((by) => {
        const { rows } = data.tables.find((table) => table.by === by);
        const link = by === "dataset" ? p.datasetLink : p.algorithmLink;
        return [h("h2", {}, `By ${by}`), qualityTable(by, rows, link)];
      }),
    ].flat();
  }

  function qualityTable(by, rows, name) {
    const { index } = p;
    const names =
      by === "dataset"
        ? index.settings.map((entry) => entry.label)
        : by === "algorithm"
          ? index.algorithms.map((entry) => entry.name)
          : ["all"];
    const numbers = rows.map((_, number) => number).filter((number) => rows[number].some(Boolean));
    const most = (row) =>
      Math.max(...rows[row].filter(Boolean).map((entry) => Math.max(entry.n_regret, entry.n_correlation)));
    const whole = (row, n) => (n < most(row) ? ` (of ${n})` : "");
    const columns = [
      {
        title: by === "all" ? "Over" : by === "dataset" ? "Dataset" : "Algorithm",
        header: true,
        kind: "name",
        value: (row) => names[row],
        cell: (row) => name(row),
      },
      { title: "Experiments", kind: "number", value: (row) => most(row), cell: (row) => p.count(most(row)) },
      ...index.criteria.flatMap((criterion, c) =>
        [
          criterion.reference
            ? null
            : {
                title: `${criterion.title} regret`,
                kind: "number",
                value: (row) => rows[row][c]?.regret ?? null,
                cell: (row) =>
                  rows[row][c]?.regret == null
                    ? "–"
                    : p.fixed(100 * rows[row][c].regret, 2).replace("-", "−") + whole(row, rows[row][c].n_regret),
              },
          {
            title: `${criterion.title} ρ`,
            kind: "number",
            down: true,
            value: (row) => rows[row][c]?.rank_correlation ?? null,
            cell: (row) =>
              rows[row][c]?.rank_correlation == null
                ? "–"
                : p.fixed(rows[row][c].rank_correlation, 2).replace("-", "−") + whole(row, rows[row][c].n_correlation),
          },
        ].filter(Boolean),
      ),
    ];
    return p.table({
      caption: `Regret and rank correlation, ${by === "all" ? "over everything" : `by ${by}`}`,
      columns,
      rows: numbers,
      kind: by === "algorithm" ? "wide" : "",
    });
  }

  function numberTried(data, query) {
    const { index } = p;
    const options = data.curves.map(({ setting }) =>
      setting === null ? ["", "all datasets"] : [index.settings[setting].label, index.settings[setting].label],
    );
    const asked = query.get("dataset") ?? "";
    const place = h("div", {});
    const shows = [
      ["regret", "Regret"],
      ["accuracy", "Accuracy"],
    ];
    const view = {
      dataset: options.some(([key]) => key === asked) ? asked : "",
      show: query.get("show") === "accuracy" ? "accuracy" : "regret",
    };
    const update = () => {
      p.keepAddress("criteria", { dataset: view.dataset, show: view.show === "regret" ? null : view.show });
      place.replaceChildren(...curveParts(data.curves[options.findIndex(([key]) => key === view.dataset)], view.show));
    };
    const controls = h(
      "div",
      { class: "controls" },
      p.select("Datasets", options, view.dataset, (value) => {
        view.dataset = value;
        update();
      }),
      p.choice("Show", "curve", shows, view.show, (value) => {
        view.show = value;
        update();
      }),
    );
    place.replaceChildren(...curveParts(data.curves[options.findIndex(([key]) => key === view.dataset)], view.show));
    return h("div", {}, controls, place);
  }

  function curveParts(curve, show) {
    const { index } = p;
    const shown = index.criteria
      .map((criterion, c) => c)
      .filter((c) => show === "accuracy" || !index.criteria[c].reference);
    const all = show === "regret" ? curve.regrets : curve.accuracies;
    const lines = shown.map((c) => all[c]);
    const most = all[0].length;
    const figureAt = (c, k) => p.fixed(100 * all[c][k], 2).replace("-", "−");
    const tell = (k) => shown.map((c) => `${index.criteria[c].title} ${figureAt(c, k)}`).join(", ");
    const what = show === "regret" ? "Regret in points" : "Test accuracy in %";
    const left = curve.left_out
      ? ` ${p.plural(curve.left_out, "experiment")} with fewer configurations ${curve.left_out === 1 ? "is" : "are"} left out.`
      : "";
    const words = `Expected over all ways to try k of the stored configurations, computed exactly; mean over ${p.plural(curve.n, "experiment")}.${left} With 1: ${tell(0)}. With ${most}: ${tell(most - 1)}.`;
    const values = lines.flat().map((value) => 100 * value);
    const figure = p.figure({
      title: `${what} against the number of configurations tried`,
      words,
      extra: [
        p.legend(
          shown.map((c) => ({
            kind: `series${c % 5}`,
            shape: SHAPES[c % 5],
            line: true,
            text: index.criteria[c].title,
          })),
        ),
      ],
      draw: (width) => {
        const range = [Math.min(...values, show === "regret" ? 0 : Infinity), Math.max(...values)];
        const room = (range[1] - range[0] || 1) * 0.08;
        const frame = p.axes({
          width,
          height: 300,
          x: { range: [1, Math.max(most, 2)], label: "configurations tried", ticks: tickNumbers(most, width) },
          y: {
            range: [range[0] - room, range[1] + room],
            label: show === "regret" ? "regret (points)" : "test accuracy (%)",
          },
        });
        if (show === "regret")
          frame.layer.append(
            s("line", { class: "zero", x1: frame.box.left, x2: frame.box.right, y1: frame.Y(0), y2: frame.Y(0) }),
          );
        shown.forEach((c) => {
          const line = all[c];
          frame.layer.append(
            s("path", {
              class: `line series${c % 5}`,
              d: p.path(
                line.map((value, k) => [k + 1, 100 * value]),
                frame.X,
                frame.Y,
              ),
            }),
          );
          line.forEach((value, k) =>
            frame.layer.append(
              p.mark({
                x: frame.X(k + 1),
                y: frame.Y(100 * value),
                kind: `series${c % 5}`,
                shape: SHAPES[c % 5],
                size: 3.2,
                title: `${index.criteria[c].title}, ${k + 1}: ${p.fixed(100 * value, 2)}`,
              }),
            ),
          );
        });
        return frame.svg;
      },
    });
    const rows = Array.from({ length: most }, (_, k) => k);
    const numbers = h(
      "details",
      { class: "notes" },
      h("summary", {}, "These curves as a table"),
      p.table({
        caption: what,
        rows,
        columns: [
          { title: "Configurations tried", header: true, kind: "number", value: (k) => k, cell: (k) => String(k + 1) },
          ...shown.map((c) => ({
            title: index.criteria[c].title,
            kind: "number",
            value: (k) => all[c][k],
            cell: (k) => figureAt(c, k),
          })),
        ],
      }),
    );
    return [figure, numbers];
  }

  function tickNumbers(most, width) {
    const all = Array.from({ length: most }, (_, k) => k + 1);
    return most > 8 && width < 600 ? all.filter((k) => k === 1 || k % 5 === 0) : all;
  }

  p.pages.criteria = { title: () => "Criteria", show: showCriteria };
})();
