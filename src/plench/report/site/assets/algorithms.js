// Algorithms: idea, objective, cost, sensitivity to hyperparameters, results.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  function showList() {
    const { index } = p;
    return [
      p.heading("Algorithms"),
      p.table({
        caption: "Algorithms",
        rows: index.algorithms.map((_, number) => number),
        columns: [
          {
            title: "Algorithm",
            header: true,
            kind: "name",
            value: (row) => index.algorithms[row].name,
            cell: (row) => p.algorithmLink(row),
          },
          {
            title: "Family",
            value: (row) => index.algorithms[row].family,
            cell: (row) => index.algorithms[row].family,
          },
          { title: "Venue", value: (row) => index.algorithms[row].venue, cell: (row) => index.algorithms[row].venue },
          {
            title: "Budget",
            value: (row) => index.algorithms[row].budget,
            cell: (row) => index.algorithms[row].budget,
          },
          {
            title: "Datasets",
            kind: "number",
            value: (row) => own(row).length,
            cell: (row) => `${own(row).length} of ${index.settings.length}`,
          },
        ],
      }),
    ];
  }

  const own = (algorithm) =>
    p.index.settings.map((_, number) => number).filter((number) => p.findCell(number, algorithm, 0));

  function showAlgorithm(query) {
    const algorithm = p.index.algorithmAt.get(query.get("name"));
    if (algorithm === undefined) return p.absent("This page has no such algorithm.");
    const criterion = p.readCriterion(query);
    const { name } = p.index.algorithms[algorithm];
    const other = p.index.algorithms.find((entry) => entry.name !== name)?.name;
    return [
      p.heading(
        name,
        h(
          "p",
          {},
          h(
            "a",
            { href: p.address("compare", { a: name, b: other, criterion: p.index.criteria[criterion].name }) },
            "Compare with another",
          ),
        ),
      ),
      p.later(`algorithm-${algorithm}`, (data) => about(data)),
      h("h2", {}, "Results"),
      p.criterionChoice(
        criterion,
        (number) => (location.hash = p.address("algorithm", { name, criterion: p.index.criteria[number].name })),
      ),
      results(algorithm, criterion),
      p.later(`algorithm-${algorithm}`, (data) => [...cost(data), ...sensitivity(data, criterion), ...citation(data)]),
    ];
  }

  function about(data) {
    return [
      data.idea ? h("p", { class: "lead" }, data.idea) : null,
      data.objective ? h("p", { class: "formula" }, formula(data.objective)) : null,
      data.card.length ? p.facts(data.card) : h("p", { class: "quiet" }, "Its records carry no card."),
      data.hyperparameters.length
        ? p.table({
            caption: "Hyperparameters of its own",
            rows: data.hyperparameters,
            columns: [
              { title: "Hyperparameter", header: true, value: (row) => row[0], cell: (row) => h("code", {}, row[0]) },
              { title: "Default", value: (row) => row[1], cell: (row) => row[1] },
              { title: "Searched", value: (row) => row[2], cell: (row) => row[2] },
              { title: "Meaning", kind: "long", unsortable: true, cell: (row) => row[3] },
            ],
          })
        : null,
    ];
  }

  /** A formula as the docstrings write it: x_i and x_{ij} are subscripts, x^2 superscripts, `name` is code. */
  function formula(text) {
    const parts = [];
    let plain = "";
    const flush = () => {
      if (plain) parts.push(plain);
      plain = "";
    };
    for (let at = 0; at < text.length; ) {
      const sign = text[at];
      if (sign === "`") {
        const end = text.indexOf("`", at + 1);
        if (end > 0) {
          flush();
          parts.push(h("code", {}, text.slice(at + 1, end)));
          at = end + 1;
          continue;
        }
      }
      if ((sign === "_" || sign === "^") && at > 0 && /\S/.test(text[at - 1]) && at + 1 < text.length) {
        const [inner, next] = raised(text, at + 1);
        if (inner) {
          flush();
          parts.push(h(sign === "_" ? "sub" : "sup", {}, formula(inner)));
          at = next;
          continue;
        }
      }
      plain += sign;
      at += 1;
    }
    flush();
    return parts;
  }

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
    const rows = own(algorithm).map((setting) => ({ setting, cell: p.findCell(setting, algorithm, criterion) }));
    const rank = ({ setting, cell }) => {
      const known = p.index.algorithms
        .map((_, number) => p.findCell(setting, number, criterion))
        .filter((other) => other && other.mean !== null);
      return cell.mean === null
        ? null
        : { rank: p.rankValues(known.map((other) => other.mean))[known.indexOf(cell)], of: known.length };
    };
    return p.table({
      caption: "Results by dataset",
      rows,
      columns: [
        {
          title: "Dataset",
          header: true,
          kind: "name",
          value: (row) => p.index.settings[row.setting].label,
          cell: (row) => p.datasetLink(row.setting),
        },
        {
          title: "Mean ± std (%)",
          kind: "number",
          down: true,
          value: (row) => row.cell.mean,
          cell: (row) =>
            p.cellLink(
              row.setting,
              algorithm,
              criterion,
              row.cell.mean === null
                ? "–"
                : `${p.percent(row.cell.mean)}${row.cell.std === null ? "" : ` ± ${p.percent(row.cell.std)}`}`,
              p.markNodes([row.cell.diverged ? "diverged" : null, row.cell.lacking ? "lacking" : null].filter(Boolean)),
            ),
        },
        {
          title: "Rank",
          kind: "number",
          value: (row) => rank(row)?.rank ?? null,
          cell: (row) =>
            rank(row) ? `${p.fixed(rank(row).rank, Number.isInteger(rank(row).rank) ? 0 : 1)} of ${rank(row).of}` : "–",
        },
        {
          title: "Regret (points)",
          kind: "number",
          value: (row) => row.cell.regret,
          cell: (row) => (row.cell.regret === null ? "–" : p.fixed(100 * row.cell.regret, 2).replace("-", "−")),
        },
        { title: "Note", kind: "long", value: (row) => row.cell.note, cell: (row) => row.cell.note },
      ],
    });
  }

  function cost(data) {
    const rows = data.cost.filter(([, n]) => n);
    const parts = [];
    if (rows.length) {
      parts.push(
        h("h2", {}, "Cost"),
        h(
          "p",
          { class: "quiet" },
          "Medians over its finished runs, as their machines took them: compare them within one machine only.",
        ),
        p.table({
          caption: "Cost of its runs",
          rows,
          columns: [
            {
              title: "Dataset",
              header: true,
              value: (row) => p.index.settings[row[0]].label,
              cell: (row) => p.datasetLink(row[0]),
            },
            { title: "Runs", kind: "number", value: (row) => row[1], cell: (row) => p.count(row[1]) },
            {
              title: "Step (ms)",
              kind: "number",
              value: (row) => row[2],
              cell: (row) => (row[2] === null ? "–" : p.short(1000 * row[2])),
            },
            {
              title: "Training",
              kind: "number",
              value: (row) => row[3],
              cell: (row) => (row[3] === null ? "–" : p.duration(row[3])),
            },
            {
              title: "Most memory (GB)",
              kind: "number",
              value: (row) => row[4],
              cell: (row) => (row[4] === null ? "–" : p.short(row[4])),
            },
          ],
        }),
      );
    }
    if (data.measured.length) {
      parts.push(
        h("h3", {}, "A step, measured"),
        p.table({
          caption: "A step, measured",
          rows: data.measured,
          columns: [
            { title: "Dataset", header: true, value: (row) => row[0], cell: (row) => row[0] },
            { title: "Step (ms)", kind: "number", value: (row) => row[1], cell: (row) => p.short(row[1]) },
            {
              title: "Times its floor",
              kind: "number",
              value: (row) => (row[2] ? row[1] / row[2] : null),
              cell: (row) => (row[2] ? p.fixed(row[1] / row[2], 2) : "–"),
            },
            {
              title: "Memory (MB)",
              kind: "number",
              value: (row) => row[3],
              cell: (row) => (row[3] === null ? "–" : p.short(row[3])),
            },
          ],
        }),
      );
    }
    return parts;
  }

  function sensitivity(data, criterion) {
    const panels = data.sensitivity[criterion];
    if (!panels.length) return [];
    return [
      h("h2", {}, "Sensitivity"),
      h(
        "p",
        { class: "quiet" },
        `Every configuration of every split: its test accuracy at the checkpoint that ${p.index.criteria[criterion].title} picks, less the mean of its dataset and split, so that datasets can be shown together.`,
      ),
      p.legend([
        { kind: "plainpoint", shape: "circle", text: "drawn configuration" },
        { kind: "series3", shape: "diamond", text: "default configuration" },
        { kind: "chosen", line: true, text: "mean of a value or a quarter of the points" },
      ]),
      h("div", { class: "pair" }, panels.map(panel)),
    ];
  }

  function panel(entry) {
    const ys = entry.points.map((point) => 100 * point[1]);
    const rangeY = p.robustRange(ys, 0.08);
    const outside = ys.filter((y) => y < rangeY[0] || y > rangeY[1]).length;
    const named = (value) =>
      Array.isArray(value)
        ? value.map(p.short).join(" to ")
        : p.short(Number.isFinite(Number(value)) && value !== "" ? Number(value) : value);
    const bins = entry.bins.map(([value, , n, mean]) => `${named(value)}: ${p.points(mean, 1)} (${n})`).join("; ");
    const words = `${entry.rho === undefined || entry.rho === null ? "" : `Rank correlation ${p.fixed(entry.rho, 2).replace("-", "−")}. `}Mean difference in points, by ${entry.categories ? "value" : "quarter"} (number of points): ${bins}.`;
    return p.figure({
      title: entry.name,
      words,
      extra: outside
        ? [h("p", { class: "quiet" }, `${p.plural(outside, "point")} outside the frame, drawn as arrows at its edge.`)]
        : [],
      draw: (width) => {
        const xs = entry.points.map((point) => point[0]);
        const low = Math.min(...xs);
        const high = Math.max(...xs);
        const x = entry.categories
          ? {
              range: [-0.6, entry.categories.length - 0.4],
              label: entry.name,
              ticks: entry.categories.map((_, number) => number),
              format: (tick) => named(entry.categories[tick]).slice(0, 12),
            }
          : {
              range: entry.log ? [low / 1.3, high * 1.3] : [low - (high - low) * 0.04, high + (high - low) * 0.04],
              label: entry.name,
              log: entry.log,
            };
        const frame = p.axes({ width, height: 230, x, y: { range: rangeY, label: "difference (points)" } });
        frame.layer.append(
          s("line", { class: "zero", x1: frame.box.left, x2: frame.box.right, y1: frame.Y(0), y2: frame.Y(0) }),
        );
        entry.points.forEach(([value, difference, isDefault], number) => {
          const spread = entry.categories ? (((number * 0.618) % 1) - 0.5) * 0.5 : 0;
          frame.layer.append(
            p.mark({
              x: frame.X(value + spread),
              y: frame.Y(100 * difference),
              box: frame.box,
              size: isDefault ? 3.6 : 2.4,
              kind: isDefault ? "series3" : "plainpoint faintpoint",
              shape: isDefault ? "diamond" : "circle",
            }),
          );
        });
        if (entry.categories) {
          for (const [, place, , mean] of entry.bins)
            frame.layer.append(
              s("path", {
                class: "line chosen",
                d: `M${frame.X(place - 0.32)} ${frame.Y(100 * mean)}H${frame.X(place + 0.32)}`,
              }),
            );
        } else {
          frame.layer.append(
            s("path", {
              class: "line chosen",
              d: p.path(
                entry.bins.map(([, middle, , mean]) => [middle, 100 * mean]),
                frame.X,
                frame.Y,
              ),
            }),
          );
        }
        return frame.svg;
      },
    });
  }

  function citation(data) {
    return data.bibtex ? [h("h2", {}, "Citation"), p.code(data.bibtex, "the BibTeX entry")] : [];
  }

  Object.assign(p, { formula });
  p.pages.algorithms = { title: () => "Algorithms", show: showList };
  p.pages.algorithm = { title: (query) => query.get("name"), show: showAlgorithm };
})();
