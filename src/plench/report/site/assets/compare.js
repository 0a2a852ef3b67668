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
    const names = [a, b].map((number) => index.algorithms[number].name);
    const view = { criterion: index.criteria[criterion].name, a: names[0], b: names[1] };
    const go = (changes) => (location.hash = p.address("compare", { ...view, ...changes }));
    const options = index.algorithms.map((entry) => [entry.name, entry.name]);
    const head = [
      h("h1", "Compare two algorithms"),
      h(
        "form.controls",
        { onsubmit: (event) => event.preventDefault() },
        p.select("First", options, names[0], (name) => go({ a: name })),
        p.select("Second", options, names[1], (name) => go({ b: name })),
        h("button", { type: "button", onclick: () => go({ a: names[1], b: names[0] }) }, "Swap"),
        p.criterionChoice(criterion, (_, name) => go({ criterion: name })),
      ),
    ];
    if (a === b) return [head, h("p", "Choose two different algorithms.")];
    return [head, p.later(`pairs-${criterion}`, (pairs) => details(pairs, a, b, gather(a, b, criterion), names))];
  }

  /** The settings with test labels, with both cells and the splits that both have. */
  function gather(a, b, criterion) {
    const labelled = p.index.settings.map((_, number) => number).filter((number) => p.index.settings[number].labelled);
    return labelled.map((setting) => {
      const cells = [a, b].map((algorithm) => p.findCell(setting, algorithm, criterion));
      const second = new Map(cells[1]?.splits ?? []);
      const splits = (cells[0]?.splits ?? [])
        .filter(([trial, value]) => value !== null && (second.get(trial) ?? null) !== null)
        .map(([trial, value]) => [trial, value - second.get(trial)]);
      const known = cells.every((cell) => cell && cell.mean !== null);
      const difference = known ? cells[0].mean - cells[1].mean : null;
      const margin = known ? Math.hypot(cells[0].se ?? 0, cells[1].se ?? 0) : null;
      return { setting, cells, splits, difference, margin };
    });
  }

  function outcome({ difference, margin }) {
    if (difference === null) return "none";
    if (Math.abs(difference) <= margin + 1e-12) return "tie";
    return difference > 0 ? "win" : "loss";
  }

  function details(data, a, b, rows, names) {
    const turned = a > b;
    const pair = data.pairs.find(({ at }) => at[0] === Math.min(a, b) && at[1] === Math.max(a, b));
    const figures = turned ? [...pair.wtl].reverse() : pair.wtl;
    const mean = pair.mean === null ? null : turned ? -pair.mean : pair.mean;
    const ahead = mean === 0 ? "neither is ahead" : `${mean > 0 ? names[0] : names[1]} is ahead`;
    const told = `wins, ties, losses of ${names[0]} vs ${names[1]} over ${p.plural(pair.n, "dataset")}. Within one standard error of the difference (both means' combined) is a tie.`;
    return [
      h(
        "div.summary",
        h("p.big", figures.join(" / "), h("small", told)),
        h(
          "ul.plainlist",
          mean === null ? null : h("li", `Mean difference over datasets: ${p.points(mean)} points (${ahead}).`),
          h("li", pair.test),
          pair.power ? h("li", pair.power) : null,
          h("li.quiet", data.overall),
        ),
      ),
      h("h2", "Split by split"),
      chart(rows, names),
      differenceTable(rows, names, pair),
      h(
        "p.quiet",
        "p: corrected resampled t-test over splits (Nadeau and Bengio), which allows for training sets that overlap but not for the number of pairs.",
      ),
    ];
  }

  function chart(rows, names) {
    const shown = rows.filter((row) => row.splits.length);
    if (!shown.length) return h("p.quiet", "They have no split in common.");
    const labelOf = (row) => p.index.settings[row.setting].label;
    const all = shown.flatMap((row) => row.splits.map(([, value]) => 100 * value));
    const range = p.robustRange([...all, 0]);
    const isOutside = ([, value]) => 100 * value < range[0] || 100 * value > range[1];
    const outside = shown.flatMap((row) =>
      row.splits.filter(isOutside).map(([trial, value]) => `${labelOf(row)}, split ${trial}: ${p.points(value)}`),
    );
    return p.figure({
      title: "Differences",
      words: `Test accuracy of ${names[0]} less that of ${names[1]} on the same split, in points: to the right of 0 ${names[0]} is better. Dots are splits, diamonds means.`,
      extra: p.outsideNote(outside),
      draw: (width) => {
        const left = Math.min(170, Math.max(90, width * 0.25));
        const longest = Math.floor(left / 7) - 1;
        const height = 60 + 26 * shown.length;
        const format = (tick) => String(tick).replace("-", "−");
        const x = { range, label: `points (${names[0]} − ${names[1]})`, format, zero: true };
        const frame = p.axes({ width, height, left, x, y: { range: [0, 1], label: "", ticks: [] } });
        shown.forEach((row, number) => {
          const y = 22 + 26 * number;
          const label = labelOf(row);
          const text = label.length > left / 7 ? `${label.slice(0, longest)}…` : label;
          const place = { x: left - 8, y: y + 4, "text-anchor": "end" };
          frame.layer.append(s("text.label", place, text, s("title", label)));
          const middle = row.splits.reduce((sum, [, value]) => sum + value, 0) / row.splits.length;
          const dot = { kind: "plainpoint", size: 4 };
          for (const [trial, value] of row.splits)
            frame.mark(100 * value, 0, { y, ...dot, title: `split ${trial}: ${p.points(value)}` });
          const diamond = { kind: "chosen", shape: "diamond", size: 5 };
          frame.mark(100 * middle, 0, { y, ...diamond, title: `mean: ${p.points(middle)}` });
        });
        return frame.svg;
      },
    });
  }

  function differenceTable(rows, names, pair) {
    const tests = new Map(pair.splits);
    const test = (row) => tests.get(row.setting) ?? null;
    const linked = (cell) => (cell ? p.cellLink(...cell.at, p.meanText(cell)) : "–");
    const difference = (row) =>
      row.difference === null ? "–" : `${p.points(row.difference)} ± ${p.percent(row.margin)}`;
    const bySplit = (row) => row.splits.map(([trial, value]) => `${trial}: ${p.points(value)}`).join("   ") || "–";
    const down = true;
    return p.table({
      caption: `Differences of ${names[0]} and ${names[1]} by dataset`,
      rows,
      columns: [
        p.datasetColumn((row) => row.setting),
        ...[0, 1].map((which) => ({
          ...p.numbers(names[which], (row) => row.cells[which]?.mean ?? null),
          down,
          cell: (row) => linked(row.cells[which]),
        })),
        { ...p.numbers("Difference (points)", (row) => row.difference), down, cell: difference },
        p.numbers("p", test, (value) => (value < 0.001 ? "< 0.001" : p.fixed(value, 3))),
        p.column("Outcome", outcome, { format: (found) => h(`span.outcome.${found}`, found) }),
        { title: "Split by split (points)", kind: "long", unsortable: true, cell: bySplit },
      ],
    });
  }

  p.pages.compare = { title: () => "Compare two algorithms", show: showCompare };
})();
