// One cell: its splits, what was chosen and from what, learning curves, and the command that repeats it.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const KEYS = {
    val_covering_rate: "covering rate",
    val_approximated_acc: "approximated accuracy",
    val_accuracy: "validation accuracy",
    test_acc: "test accuracy",
  };
  const keyName = (key) => KEYS[key] ?? key;

  function showCell(query) {
    const { index } = p;
    const setting = index.settingAt.get(query.get("dataset"));
    const algorithm = index.algorithmAt.get(query.get("algorithm"));
    const criterion = p.readCriterion(query);
    if (setting === undefined || algorithm === undefined) return p.absent("This page has no such cell.");
    const cell = p.findCell(setting, algorithm, criterion);
    const view = {
      algorithm: index.algorithms[algorithm].name,
      dataset: index.settings[setting].label,
      criterion: index.criteria[criterion].name,
      split: query.get("split"),
    };
    const head = [
      h("h1", p.algorithmLink(algorithm), " on ", p.datasetLink(setting)),
      p.criterionChoice(criterion, (_, name) => (location.hash = p.address("cell", { ...view, criterion: name }))),
    ];
    if (!cell) return [head, h("p", "No run of this algorithm on this dataset is in the records.")];
    return [head, summary(cell), p.later(`cell-${setting}-${algorithm}`, (data) => details(data, cell, view))];
  }

  function summary(cell) {
    const [setting, , criterion] = cell.at;
    const { labelled, chance, plan } = p.index.settings[setting];
    const what = labelled
      ? "test accuracy in %"
      : `${p.index.criteria[criterion].title} in % (no true labels are known)`;
    const deviation = cell.std === null ? "" : " ± sample standard deviation";
    const told =
      cell.mean === null
        ? "there was nothing to choose from"
        : `mean ${what} over ${p.plural(cell.n, "split")}${deviation}`;
    const below = p.isBelowChance(setting, cell.mean);
    return h(
      "div.summary",
      h("p.big", cell.mean === null ? "No figure" : p.meanText(cell), h("small", told)),
      h(
        "ul.plainlist",
        cell.se === null ? null : h("li", `Standard error of the mean: ${p.percent(cell.se)}`),
        below ? h("li.wrong", `▼ Below chance, which is ${p.percent(chance, 1)} %`) : null,
        cell.diverged ? h("li.wrong", `† ${p.plural(cell.diverged, "run")} diverged`) : null,
        cell.note ? h("li", `Note: ${cell.note}`) : null,
        h("li.quiet", plan),
      ),
    );
  }

  function details(data, cell, view) {
    const choices = data.choices[cell.at[2]];
    const splits = choices.map(([trial]) => String(trial));
    const preset = splits.find((_, number) => choices[number][1] !== null) ?? splits[0];
    const current = splits.includes(view.split) ? view.split : preset;
    const place = h("div");
    const showSplit = (split) => {
      const parts = splitParts(data, choices[splits.indexOf(split)], cell.at);
      place.replaceChildren(...parts.flat(Infinity).filter(Boolean));
    };
    const change = (split) => {
      p.keepAddress("cell", { ...view, split });
      showSplit(split);
    };
    if (current !== undefined) showSplit(current);
    const options = splits.map((split) => [split, split]);
    return [
      h("h2", "Splits"),
      splitTable(data, choices, cell.at),
      splits.length > 1 ? p.choice("Split", "split", options, current, change) : null,
      place,
    ];
  }

  /** The columns of what a run offers to a criterion, and of its test accuracy if labels are known. */
  function offerColumns([setting, , criterion], runOf) {
    const offered = (row, number) => runOf(row)?.offers[criterion]?.[number] ?? null;
    const marks = (row) => (p.isBelowChance(setting, offered(row, 2)) ? ["chance"] : []);
    const test = {
      ...p.numbers("Test accuracy (%)", (row) => offered(row, 2), p.percent, { down: true }),
      cell: (row) => [offered(row, 2) === null ? "–" : p.percent(offered(row, 2)), p.markNodes(marks(row))],
    };
    return [
      p.numbers("Step", (row) => offered(row, 0)),
      p.numbers(`${p.index.criteria[criterion].title} (%)`, (row) => offered(row, 1), p.percent, { down: true }),
      ...(p.index.settings[setting].labelled ? [test] : []),
    ];
  }

  function splitTable(data, choices, at) {
    const run = (row) => (row[1] === null ? null : data.runs[row[1]]);
    return p.table({
      caption: "What was chosen on each split",
      rows: choices,
      columns: [
        p.numbers("Split", (row) => row[0], String, { header: true }),
        {
          ...p.numbers("Configuration", (row) => run(row)?.configuration ?? null),
          cell: (row) => (run(row) ? String(run(row).configuration) : h("span.quiet", "nothing to choose from")),
        },
        ...offerColumns(at, run),
        {
          title: "Chosen hyperparameters",
          kind: "long",
          unsortable: true,
          cell: (row) => (run(row) ? hparamText(data, run(row)) : ""),
        },
      ],
    });
  }

  const hparamText = (data, run) =>
    data.hparams.map((name, number) => `${name} = ${p.short(run.hparams[number])}`).join(", ");

  function splitParts(data, [trial, place, step], at) {
    const criterion = p.index.criteria[at[2]];
    const { labelled } = p.index.settings[at[0]];
    const runs = data.runs.filter((run) => run.split === trial);
    const chosen = place === null ? null : data.runs[place];
    const keys = [...new Set([criterion.key, ...(labelled ? ["test_acc"] : [])])];
    return [
      h("h2", `Split ${trial}`),
      h(
        "div.pair",
        keys.map((key) => curves(data, runs, chosen, step, key)),
      ),
      chosen ? curveTable(data, chosen, step) : null,
      labelled ? scatter(data, runs, chosen, at) : null,
      h("h3", "Every configuration of this split"),
      configurationTable(data, runs, chosen, at),
      chosen ? [h("h3", "Repeat the chosen run"), repeat(chosen)] : null,
    ];
  }

  function repeat({ command, stack }) {
    if (!command) return h("p.quiet", "Its record does not contain its configuration.");
    const place = command.endsWith("--data-dir DATA") ? "DATA is the folder of the data files. " : "";
    const note = stack
      ? `It was trained in a stack of ${stack} runs; alone it gives the same numbers up to rounding. plench results verify repeats the stack.`
      : "The same versions give the same numbers.";
    return [p.code(command, "the command"), h("p.quiet", `${place}${note}`)];
  }

  const stepsOf = (data, run) => run.steps ?? data.steps;

  function series(data, run, key) {
    const values = run.curves[data.keys.indexOf(key)];
    const scaled = (value) => (value === null ? null : (100 * value) / data.scale);
    return stepsOf(data, run).map((step, number) => [step, scaled(values[number])]);
  }

  function curves(data, runs, chosen, step, key) {
    const name = keyName(key);
    const all = runs.map((run) => [run, series(data, run, key)]);
    const values = all.flatMap(([, line]) => line.map(([, y]) => y)).filter((y) => y !== null);
    if (!values.length) return h("p.quiet", `No record has a ${name}.`);
    const last = Math.max(...all.flatMap(([, line]) => line.map(([x]) => x)), 1);
    const own = chosen ? series(data, chosen, key).filter(([, y]) => y !== null) : [];
    const at = own.find(([x]) => x === step);
    const goes = () => {
      const [from, to] = [own[0], own[own.length - 1]];
      const course = `goes from ${p.fixed(from[1], 1)} % at step ${from[0]} to ${p.fixed(to[1], 1)} % at step ${p.count(to[0])}`;
      const there = at ? ` with ${p.fixed(at[1], 1)} %` : "";
      return `The chosen run, configuration ${chosen.configuration}, ${course}; chosen at step ${p.count(step)}${there}. Thin lines: the other ${runs.length - 1}.`;
    };
    return p.figure({
      title: `${name[0].toUpperCase()}${name.slice(1)}`,
      words: own.length ? goes() : "Nothing was chosen here.",
      draw: (width) => {
        const [low, high] = [Math.min(...values), Math.max(...values)];
        const room = (high - low || 1) * 0.06;
        const range = [Math.max(0, low - room), Math.min(100, high + room)];
        const x = { range: [0, last], label: "step" };
        const frame = p.axes({ width, x, y: { range, label: `${name} (%)` } });
        for (const [run, line] of all) {
          if (run !== chosen) frame.line("other", line, `configuration ${run.configuration}, ${run.status}`);
        }
        if (chosen) frame.line("chosen", own);
        const title = at && `step ${at[0]}: ${p.fixed(at[1], 2)} %`;
        if (at) frame.mark(...at, { shape: "diamond", size: 5, kind: "chosen", title });
        return frame.svg;
      },
    });
  }

  function curveTable(data, chosen, step) {
    const steps = stepsOf(data, chosen);
    const scaled = (value) => p.fixed((100 * value) / data.scale, 2);
    const stepText = (value) => `${p.count(value)}${value === step ? " ◆" : ""}`;
    const columns = [
      p.numbers("Step", (row) => steps[row], stepText, { header: true }),
      p.numbers("Loss", (row) => chosen.loss[row], p.short),
      ...data.keys.map((key, number) =>
        p.numbers(`${keyName(key)} (%)`, (row) => chosen.curves[number][row], scaled),
      ),
    ];
    return p.folded(
      "The chosen run's curve as a table (◆ the chosen checkpoint)",
      p.table({ caption: "The chosen run's records", columns, rows: steps.map((_, number) => number) }),
    );
  }

  function scatter(data, runs, chosen, at) {
    const { title } = p.index.criteria[at[2]];
    const spots = runs
      .map((run) => [run, run.offers[at[2]]])
      .filter(([, offer]) => offer && offer[2] !== null)
      .map(([run, offer]) => [run, 100 * offer[1], 100 * offer[2]]);
    if (!spots.length) return null;
    const best = Math.max(...spots.map((spot) => spot[2]));
    const own = spots.find(([run]) => run === chosen);
    const told = own
      ? `, each at the checkpoint that ${title} picks. The chosen one has ${p.fixed(own[2], 1)} % test accuracy; the best there is has ${p.fixed(best, 1)} %.`
      : ".";
    const rangeX = p.robustRange(spots.map((spot) => spot[1]));
    const rangeY = p.robustRange(spots.map((spot) => spot[2]));
    const outside = spots
      .filter(([, x, y]) => x < rangeX[0] || x > rangeX[1] || y < rangeY[0] || y > rangeY[1])
      .map(([run, x, y]) => `configuration ${run.configuration} (${p.fixed(x, 1)}, ${p.fixed(y, 1)})`);
    const looks = {
      chosen: { kind: "chosen", shape: "diamond", size: 5, text: "chosen" },
      other: { kind: "plainpoint", shape: "circle", size: 4, text: "other configurations" },
      diverged: { kind: "bad", shape: "square", size: 4, text: "diverged later" },
    };
    const lookOf = (run) => looks[run === chosen ? "chosen" : run.status === "diverged" ? "diverged" : "other"];
    const someDiverged = spots.some(([run]) => run.status === "diverged");
    const used = [looks.chosen, looks.other, ...(someDiverged ? [looks.diverged] : [])];
    return p.figure({
      title: `${title} vs test accuracy`,
      words: `One point per configuration (${spots.length})${told}`,
      extra: [p.legend(used), p.outsideNote(outside)],
      draw: (width) => {
        const frame = p.axes({
          width,
          height: 300,
          x: { range: rangeX, label: `${title} on validation (%)` },
          y: { range: rangeY, label: "test accuracy (%)" },
        });
        for (const [run, x, y] of [...spots].sort((a, b) => (a[0] === chosen) - (b[0] === chosen))) {
          const figures = `configuration ${run.configuration}: ${title} ${p.fixed(x, 2)}, test ${p.fixed(y, 2)}`;
          frame.mark(x, y, { ...lookOf(run), title: `${figures}\n${hparamText(data, run)}` });
        }
        return frame.svg;
      },
    });
  }

  function statusNode(run) {
    if (run.status === "done") return "done";
    return h("span.wrong", run.status === "diverged" ? `† diverged after step ${run.diverged}` : run.status);
  }

  function configurationTable(data, runs, chosen, at) {
    const mark = (run) => (run === chosen ? h("strong", " chosen") : "");
    const columns = [
      {
        ...p.numbers("Configuration", (run) => run.configuration, String, { header: true }),
        cell: (run) => [String(run.configuration), mark(run)],
      },
      p.column("Status", (run) => run.status, { cell: statusNode }),
      ...offerColumns(at, (run) => run),
      ...data.hparams.map((name, number) => ({
        title: name,
        kind: runs.every((run) => typeof run.hparams[number] === "number") ? "number" : "",
        value: (run) => run.hparams[number],
        format: p.short,
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
