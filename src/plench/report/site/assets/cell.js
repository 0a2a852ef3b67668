// One cell: its splits, what was chosen and from what, learning curves, and the command that repeats it.
(function () {
  "use strict";
  const p = window.plench;
  const { h, s } = p;

  const KEYS = {
    val_covering_rate: "covering rate",
    val_approximated_acc: "approximated accuracy",
    val_accuracy: "validation accuracy",
    test_acc: "test accuracy",
  };
  const keyName = (key) => KEYS[key] ?? key;

  function showCell(query) {
    const setting = p.index.settingAt.get(query.get("dataset"));
    const algorithm = p.index.algorithmAt.get(query.get("algorithm"));
    const criterion = p.readCriterion(query);
    if (setting === undefined || algorithm === undefined) return p.absent("This page has no such cell.");
    const cell = p.findCell(setting, algorithm, criterion);
    const names = { algorithm: p.index.algorithms[algorithm].name, dataset: p.index.settings[setting].label };
    const go = (changes) =>
      (location.hash = p.address("cell", { ...names, criterion: p.index.criteria[criterion].name, ...changes }));
    const head = p.heading(
      [p.algorithmLink(algorithm), " on ", p.datasetLink(setting)],
      p.criterionChoice(criterion, (number) =>
        go({ criterion: p.index.criteria[number].name, split: query.get("split") }),
      ),
    );
    if (!cell) return [head, h("p", {}, "No run of this algorithm on this dataset is in the records.")];
    return [
      head,
      summary(cell, setting, criterion),
      p.later(`cell-${setting}-${algorithm}`, (runs) =>
        details(runs, cell, { setting, algorithm, criterion }, query.get("split"), names),
      ),
    ];
  }

  function summary(cell, setting, criterion) {
    const { labelled, chance, plan } = p.index.settings[setting];
    const what = labelled
      ? "test accuracy in %"
      : `${p.index.criteria[criterion].title} in % (no true labels are known)`;
    const figure =
      cell.mean === null
        ? "No figure"
        : `${p.percent(cell.mean)}${cell.std === null ? "" : ` ± ${p.percent(cell.std)}`}`;
    const told =
      cell.mean === null
        ? "there was nothing to choose from"
        : `mean ${what} over ${p.plural(cell.n, "split")}${cell.std === null ? "" : " ± sample standard deviation"}`;
    const below = labelled && chance !== null && cell.mean !== null && cell.mean < chance;
    return h(
      "div",
      { class: "summary" },
      h("p", { class: "big" }, figure, h("small", {}, told)),
      h(
        "ul",
        { class: "plainlist" },
        cell.se !== null ? h("li", {}, `Standard error of the mean: ${p.percent(cell.se)}`) : null,
        below ? h("li", { class: "wrong" }, `▼ Below chance, which is ${p.percent(chance, 1)} %`) : null,
        cell.diverged ? h("li", { class: "wrong" }, `† ${p.plural(cell.diverged, "run")} diverged`) : null,
        cell.note ? h("li", {}, `Note: ${cell.note}`) : null,
        h("li", { class: "quiet" }, plan),
      ),
    );
  }

  function details(data, cell, at, splitAsked, names) {
    const criterion = p.index.criteria[at.criterion];
    const choices = data.choices[at.criterion];
    const splits = choices.map(([trial]) => String(trial));
    const current = splits.includes(splitAsked)
      ? splitAsked
      : (splits.find((_, number) => choices[number][1] !== null) ?? splits[0]);
    const place = h("div", {});
    const showSplit = (split) => {
      const [trial, chosen, step] = choices[splits.indexOf(split)];
      const runs = data.runs.filter((run) => run.split === trial);
      place.replaceChildren(...splitParts(data, runs, chosen === null ? null : data.runs[chosen], step, at, trial));
    };
    if (current !== undefined) showSplit(current);
    return [
      h("h2", {}, "Splits"),
      splitTable(data, choices, at),
      splits.length > 1
        ? p.choice(
            "Split",
            "split",
            splits.map((split) => [split, split]),
            current,
            (split) => {
              p.keepAddress("cell", { ...names, criterion: criterion.name, split });
              showSplit(split);
            },
          )
        : null,
      place,
    ];
  }

  function splitTable(data, choices, at) {
    const { chance, labelled } = p.index.settings[at.setting];
    const run = (row) => (row[1] === null ? null : data.runs[row[1]]);
    const offer = (row) => run(row)?.offers[at.criterion] ?? null;
    const columns = [
      { title: "Split", header: true, kind: "number", value: (row) => row[0], cell: (row) => String(row[0]) },
      {
        title: "Configuration",
        kind: "number",
        value: (row) => run(row)?.configuration ?? null,
        cell: (row) =>
          run(row) ? String(run(row).configuration) : h("span", { class: "quiet" }, "nothing to choose from"),
      },
      {
        title: "Step",
        kind: "number",
        value: (row) => row[2],
        cell: (row) => (row[2] === null ? "" : p.count(row[2])),
      },
      {
        title: `${p.index.criteria[at.criterion].title} (%)`,
        kind: "number",
        value: (row) => offer(row)?.[1] ?? null,
        cell: (row) => (offer(row) ? p.percent(offer(row)[1]) : ""),
      },
    ];
    if (labelled) {
      columns.push({
        title: "Test accuracy (%)",
        kind: "number",
        down: true,
        value: (row) => offer(row)?.[2] ?? null,
        cell: (row) => {
          const test = offer(row)?.[2] ?? null;
          return test === null
            ? ""
            : [p.percent(test), chance !== null && test < chance ? p.markNodes(["chance"]) : null];
        },
      });
    }
    columns.push({
      title: "Chosen hyperparameters",
      kind: "long",
      unsortable: true,
      cell: (row) => (run(row) ? hparamText(data, run(row)) : ""),
    });
    return p.table({ caption: "What was chosen on each split", columns, rows: choices });
  }

  const hparamText = (data, run) =>
    data.hparams.map((name, number) => `${name} = ${p.short(run.hparams[number])}`).join(", ");

  function splitParts(data, runs, chosen, step, at, trial) {
    const criterion = p.index.criteria[at.criterion];
    const { labelled } = p.index.settings[at.setting];
    const keys = [...new Set([criterion.key, ...(labelled ? ["test_acc"] : [])])];
    return [
      h("h2", {}, `Split ${trial}`),
      h(
        "div",
        { class: "pair" },
        keys.map((key) => curves(data, runs, chosen, step, key)),
      ),
      chosen ? curveTable(data, chosen, step) : null,
      labelled ? scatter(data, runs, chosen, at) : null,
      h("h3", {}, "Every configuration of this split"),
      configurationTable(data, runs, chosen, at, labelled),
      chosen
        ? [
            h("h3", {}, "Repeat the chosen run"),
            chosen.command
              ? [
                  p.code(chosen.command, "the command"),
                  h(
                    "p",
                    { class: "quiet" },
                    "Add --data-dir with the folder of the data, where it is not built in. The same versions give the same numbers.",
                  ),
                ]
              : h("p", { class: "quiet" }, "Its record does not say how it was made."),
          ]
        : null,
    ]
      .flat(Infinity)
      .filter(Boolean);
  }

  const stepsOf = (data, run) => run.steps ?? data.steps;

  function series(data, run, key) {
    const values = run.curves[data.keys.indexOf(key)];
    return stepsOf(data, run).map((step, number) => [
      step,
      values[number] === null ? null : (100 * values[number]) / data.scale,
    ]);
  }

  function curves(data, runs, chosen, step, key) {
    const all = runs.map((run) => [run, series(data, run, key)]);
    const values = all.flatMap(([, line]) => line.map(([, y]) => y)).filter((y) => y !== null);
    const steps = all.flatMap(([, line]) => line.map(([x]) => x));
    const own = chosen ? series(data, chosen, key).filter(([, y]) => y !== null) : [];
    const at = own.find(([x]) => x === step);
    const words = own.length
      ? `The chosen run, configuration ${chosen.configuration}, goes from ${p.fixed(own[0][1], 1)} % at step ${own[0][0]} to ${p.fixed(own[own.length - 1][1], 1)} % at step ${p.count(own[own.length - 1][0])}; chosen at step ${p.count(step)}${at ? ` with ${p.fixed(at[1], 1)} %` : ""}. Thin lines: the other ${runs.length - 1}.`
      : "Nothing was chosen here.";
    const title = `${keyName(key)[0].toUpperCase()}${keyName(key).slice(1)}`;
    if (!values.length) return h("p", { class: "quiet" }, `No record has a ${keyName(key)}.`);
    return p.figure({
      title,
      words,
      draw: (width) => {
        const low = Math.min(...values);
        const high = Math.max(...values);
        const room = (high - low || 1) * 0.06;
        const frame = p.axes({
          width,
          x: { range: [0, Math.max(...steps, 1)], label: "step" },
          y: { range: [Math.max(0, low - room), Math.min(100, high + room)], label: `${keyName(key)} (%)` },
        });
        for (const [run, line] of all) {
          if (run !== chosen)
            frame.layer.append(
              s(
                "path",
                { class: "line other", d: p.path(line, frame.X, frame.Y) },
                s("title", {}, `configuration ${run.configuration}, ${run.status}`),
              ),
            );
        }
        if (chosen) frame.layer.append(s("path", { class: "line chosen", d: p.path(own, frame.X, frame.Y) }));
        if (at)
          frame.layer.append(
            p.mark({
              x: frame.X(at[0]),
              y: frame.Y(at[1]),
              shape: "diamond",
              size: 5,
              kind: "chosen",
              title: `step ${at[0]}: ${p.fixed(at[1], 2)} %`,
            }),
          );
        return frame.svg;
      },
    });
  }

  function curveTable(data, chosen, step) {
    const steps = stepsOf(data, chosen);
    const columns = [
      {
        title: "Step",
        header: true,
        kind: "number",
        value: (row) => steps[row],
        cell: (row) => [p.count(steps[row]), steps[row] === step ? " ◆" : ""],
      },
      {
        title: "Loss",
        kind: "number",
        value: (row) => chosen.loss[row],
        cell: (row) => (chosen.loss[row] === null ? "" : p.short(chosen.loss[row])),
      },
      ...data.keys.map((key, number) => ({
        title: `${keyName(key)} (%)`,
        kind: "number",
        value: (row) => chosen.curves[number][row],
        cell: (row) =>
          chosen.curves[number][row] === null ? "" : p.fixed((100 * chosen.curves[number][row]) / data.scale, 2),
      })),
    ];
    return h(
      "details",
      { class: "notes" },
      h("summary", {}, "The chosen run's curve as a table (◆ the chosen checkpoint)"),
      p.table({ caption: "The chosen run's records", columns, rows: steps.map((_, number) => number) }),
    );
  }

  function scatter(data, runs, chosen, at) {
    const { title } = p.index.criteria[at.criterion];
    const spots = runs
      .map((run) => [run, run.offers[at.criterion]])
      .filter(([, offer]) => offer && offer[2] !== null)
      .map(([run, offer]) => [run, 100 * offer[1], 100 * offer[2]]);
    if (!spots.length) return null;
    const best = spots.reduce((top, spot) => (spot[2] > top[2] ? spot : top));
    const own = spots.find(([run]) => run === chosen);
    const words = own
      ? `One point per configuration (${spots.length}), each at the checkpoint that ${title} picks. The chosen one has ${p.fixed(own[2], 1)} % test accuracy; the best there is has ${p.fixed(best[2], 1)} %.`
      : `One point per configuration (${spots.length}).`;
    const rangeX = p.robustRange(spots.map((spot) => spot[1]));
    const rangeY = p.robustRange(spots.map((spot) => spot[2]));
    const outside = spots.filter(([, x, y]) => x < rangeX[0] || x > rangeX[1] || y < rangeY[0] || y > rangeY[1]);
    const note = outside.length
      ? h(
          "p",
          { class: "quiet" },
          `Outside the frame, drawn as arrows at its edge: ${outside.map(([run, x, y]) => `configuration ${run.configuration} (${p.fixed(x, 1)}, ${p.fixed(y, 1)})`).join("; ")}.`,
        )
      : null;
    return p.figure({
      title: `${title} against test accuracy`,
      words,
      extra: [
        p.legend([
          { kind: "chosen", shape: "diamond", text: "chosen" },
          { kind: "plainpoint", shape: "circle", text: "other configurations" },
          ...(spots.some(([run]) => run.status === "diverged")
            ? [{ kind: "bad", shape: "square", text: "diverged later" }]
            : []),
        ]),
        note,
      ],
      draw: (width) => {
        const frame = p.axes({
          width,
          height: 300,
          x: { range: rangeX, label: `${title} on validation (%)` },
          y: { range: rangeY, label: "test accuracy (%)" },
        });
        for (const [run, x, y] of [...spots].sort((a, b) => (a[0] === chosen) - (b[0] === chosen))) {
          const kind = run === chosen ? "chosen" : run.status === "diverged" ? "bad" : "plainpoint";
          frame.layer.append(
            p.mark({
              x: frame.X(x),
              y: frame.Y(y),
              box: frame.box,
              kind,
              shape: run === chosen ? "diamond" : run.status === "diverged" ? "square" : "circle",
              size: run === chosen ? 5 : 4,
              title: `configuration ${run.configuration}: ${title} ${p.fixed(x, 2)}, test ${p.fixed(y, 2)}\n${hparamText(data, run)}`,
            }),
          );
        }
        return frame.svg;
      },
    });
  }

  function configurationTable(data, runs, chosen, at, labelled) {
    const offer = (run) => run.offers[at.criterion];
    const columns = [
      {
        title: "Configuration",
        header: true,
        kind: "number",
        value: (run) => run.configuration,
        cell: (run) => [String(run.configuration), run === chosen ? h("strong", {}, " chosen") : ""],
      },
      {
        title: "Status",
        value: (run) => run.status,
        cell: (run) =>
          run.status === "done"
            ? "done"
            : h(
                "span",
                { class: "wrong" },
                run.status === "diverged" ? `† diverged after step ${run.diverged}` : run.status,
              ),
      },
      {
        title: "Step",
        kind: "number",
        value: (run) => offer(run)?.[0] ?? null,
        cell: (run) => (offer(run) ? p.count(offer(run)[0]) : ""),
      },
      {
        title: `${p.index.criteria[at.criterion].title} (%)`,
        kind: "number",
        down: true,
        value: (run) => offer(run)?.[1] ?? null,
        cell: (run) => (offer(run) ? p.percent(offer(run)[1]) : ""),
      },
      ...(labelled
        ? [
            {
              title: "Test (%)",
              kind: "number",
              down: true,
              value: (run) => offer(run)?.[2] ?? null,
              cell: (run) => (offer(run) ? p.percent(offer(run)[2]) : ""),
            },
          ]
        : []),
      ...data.hparams.map((name, number) => ({
        title: name,
        kind: runs.every((run) => typeof run.hparams[number] === "number") ? "number" : "",
        value: (run) => run.hparams[number],
        cell: (run) => p.short(run.hparams[number]),
      })),
    ];
    return p.table({
      caption: "Every configuration of this split",
      columns,
      rows: runs,
      sort: { column: 3, down: true },
      rowClass: (run) => (run === chosen ? "picked" : null),
    });
  }

  p.pages.cell = { title: (query) => `${query.get("algorithm")} on ${query.get("dataset")}`, show: showCell };
})();
