// Two algorithms side by side: differences split by split, wins, and what the test can say.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  function showCompare(query) {
    const { index } = p;
    const criterion = p.readCriterion(query);
    const a = index.algorithmAt.get(query.get("a")) ?? 0;
    const b = index.algorithmAt.get(query.get("b")) ?? Math.min(1, index.algorithms.length - 1);
    const names = {
      criterion: index.criteria[criterion].name,
      a: index.algorithms[a].name,
      b: index.algorithms[b].name,
    };
    const go = (changes) => (location.hash = p.address("compare", { ...names, ...changes }));
    const options = index.algorithms.map((entry) => [entry.name, entry.name]);
    const head = p.heading(
      "Compare two algorithms",
      h(
        "form",
        { class: "controls", onsubmit: (event) => event.preventDefault() },
        p.select("First", options, names.a, (name) => go({ a: name })),
        p.select("Second", options, names.b, (name) => go({ b: name })),
        h("button", { type: "button", class: "plain", onclick: () => go({ a: names.b, b: names.a }) }, "Swap"),
        p.criterionChoice(criterion, (number) => go({ criterion: index.criteria[number].name })),
      ),
    );
    if (a === b) return [head, h("p", {}, "Choose two different algorithms.")];
    return [head, p.later(`pairs-${criterion}`, (pairs) => details(pairs, a, b, criterion))];
  }

  /** The settings with test labels, with both cells and the splits that both have. */
  function gather(a, b, criterion) {
    return p.index.settings
      .map((setting, number) => ({ setting, number }))
      .filter(({ setting }) => setting.labelled)
      .map(({ number }) => {
        const cells = [a, b].map((algorithm) => p.findCell(number, algorithm, criterion));
        const second = new Map(cells[1]?.splits ?? []);
        const splits = (cells[0]?.splits ?? [])
          .filter(([trial, value]) => value !== null && (second.get(trial) ?? null) !== null)
          .map(([trial, value]) => [trial, value - second.get(trial)]);
        const known = cells.every((cell) => cell && cell.mean !== null);
        return {
          number,
          cells,
          splits,
          difference: known ? cells[0].mean - cells[1].mean : null,
          margin: known ? Math.hypot(cells[0].se ?? 0, cells[1].se ?? 0) : null,
        };
      });
  }

  function outcome(row) {
    if (row.difference === null) return "none";
    if (Math.abs(row.difference) <= row.margin + 1e-12) return "tie";
    return row.difference > 0 ? "win" : "loss";
  }

  function details(data, a, b, criterion) {
    const names = [a, b].map((number) => p.index.algorithms[number].name);
    const turned = a > b;
    const pair = data.pairs.find(({ at }) => at[0] === Math.min(a, b) && at[1] === Math.max(a, b));
    const rows = gather(a, b, criterion);
    const [wins, ties, losses] = turned ? [...pair.wtl].reverse() : pair.wtl;
    const mean = pair.mean === null ? null : turned ? -pair.mean : pair.mean;
    return [
      h(
        "div",
        { class: "summary" },
        h(
          "p",
          { class: "big" },
          `${wins} / ${ties} / ${losses}`,
          h(
            "small",
            {},
            `wins, ties, losses of ${names[0]} against ${names[1]} over ${p.plural(pair.n, "dataset")}. Within one standard error of the difference (both means' combined) is a tie.`,
          ),
        ),
        h(
          "ul",
          { class: "plainlist" },
          mean === null
            ? null
            : h(
                "li",
                {},
                `Mean difference over datasets: ${p.points(mean)} points (${mean === 0 ? "neither is ahead" : `${mean > 0 ? names[0] : names[1]} is ahead`}).`,
              ),
          h("li", {}, pair.test),
          pair.power ? h("li", {}, pair.power) : null,
          h("li", { class: "quiet" }, data.overall),
        ),
      ),
      h("h2", {}, "Split by split"),
      chart(rows, names),
      differenceTable(rows, names, criterion),
    ];
  }

  function chart(rows, names) {
    const shown = rows.filter((row) => row.splits.length);
    if (!shown.length) return h("p", { class: "quiet" }, "They have no split in common.");
    const all = shown.flatMap((row) => row.splits.map(([, value]) => 100 * value));
    const [low, high] = p.robustRange([...all, 0]);
    const outside = shown.flatMap((row) =>
      row.splits
        .filter(([, value]) => 100 * value < low || 100 * value > high)
        .map(([trial, value]) => `${p.index.settings[row.number].label}, split ${trial}: ${p.points(value)}`),
    );
    const words = `Test accuracy of ${names[0]} less that of ${names[1]} on the same split, in points: to the right of 0 ${names[0]} is better. Dots are splits, diamonds means.`;
    return p.figure({
      title: "Differences",
      words,
      extra: outside.length
        ? [h("p", { class: "quiet" }, `Outside the frame, drawn as arrows: ${outside.join("; ")}.`)]
        : [],
      draw: (width) => {
        const left = Math.min(170, Math.max(90, width * 0.25));
        const height = 60 + 26 * shown.length;
        const frame = p.axes({
          width,
          height,
          left,
          x: {
            range: [low, high],
            label: `points (${names[0]} − ${names[1]})`,
            format: (tick) => String(tick).replace("-", "−"),
          },
          y: { range: [0, 1], label: "", ticks: [] },
        });
        frame.layer.append(s("line", { class: "zero", x1: frame.X(0), x2: frame.X(0), y1: 8, y2: frame.box.bottom }));
        shown.forEach((row, number) => {
          const y = 22 + 26 * number;
          const { label } = p.index.settings[row.number];
          frame.layer.append(
            s(
              "text",
              { class: "label", x: left - 8, y: y + 4, "text-anchor": "end" },
              label.length > left / 7 ? `${label.slice(0, Math.floor(left / 7) - 1)}…` : label,
              s("title", {}, label),
            ),
          );
          for (const [trial, value] of row.splits)
            frame.layer.append(
              p.mark({
                x: frame.X(100 * value),
                y,
                box: frame.box,
                kind: "plainpoint",
                size: 4,
                title: `split ${trial}: ${p.points(value)}`,
              }),
            );
          const middle = p.mean(row.splits.map(([, value]) => value));
          frame.layer.append(
            p.mark({
              x: frame.X(100 * middle),
              y,
              box: frame.box,
              kind: "chosen",
              shape: "diamond",
              size: 5,
              title: `mean: ${p.points(middle)}`,
            }),
          );
        });
        return frame.svg;
      },
    });
  }

  function differenceTable(rows, names, criterion) {
    const figure = (cell) =>
      cell && cell.mean !== null
        ? `${p.percent(cell.mean)}${cell.std === null ? "" : ` ± ${p.percent(cell.std)}`}`
        : "–";
    return p.table({
      caption: `Differences of ${names[0]} and ${names[1]} by dataset`,
      rows,
      columns: [
        {
          title: "Dataset",
          header: true,
          value: (row) => p.index.settings[row.number].label,
          cell: (row) => p.datasetLink(row.number),
        },
        ...[0, 1].map((which) => ({
          title: names[which],
          kind: "number",
          down: true,
          value: (row) => row.cells[which]?.mean ?? null,
          cell: (row) =>
            row.cells[which]
              ? p.cellLink(row.number, row.cells[which].at[1], criterion, figure(row.cells[which]))
              : "–",
        })),
        {
          title: "Difference (points)",
          kind: "number",
          down: true,
          value: (row) => row.difference,
          cell: (row) => (row.difference === null ? "–" : `${p.points(row.difference)} ± ${p.percent(row.margin)}`),
        },
        {
          title: "Outcome",
          value: (row) => outcome(row),
          cell: (row) => h("span", { class: `outcome ${outcome(row)}` }, outcome(row)),
        },
        {
          title: "Split by split (points)",
          kind: "long",
          unsortable: true,
          cell: (row) => row.splits.map(([trial, value]) => `${trial}: ${p.points(value)}`).join("   ") || "–",
        },
      ],
    });
  }

  Object.assign(p, { gatherDifferences: gather, outcomeOf: outcome });
  p.pages.compare = { title: () => "Compare two algorithms", show: showCompare };
})();
