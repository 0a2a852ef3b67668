// The leaderboard: algorithms × datasets for one criterion.
(function () {
  "use strict";
  const p = window.plench;
  const { h, MARKS } = p;

  const SHOWS = [
    ["accuracy", "Accuracy", "Mean test accuracy over splits"],
    ["rank", "Rank", "Rank of the mean among the algorithms shown, 1 is best"],
    ["regret", "Regret", "Test accuracy lost compared with choosing by true labels with early stopping"],
  ];
  const ERRORS = [
    ["std", "std", "Sample standard deviation over splits"],
    ["se", "s.e.", "Standard error of the mean"],
    ["none", "none", "No ±"],
  ];
  const METHODS = [
    ["all", "all"],
    ["deep", "deep"],
    ["classical", "classical"],
  ];
  const ERROR_WORDS = {
    std: "the sample standard deviation over splits (divisor n − 1)",
    se: "the standard error of the mean, the standard deviation over √n splits",
  };

  // The view, which the address holds; its first options are the default

  function readView(query) {
    const one = (key, options) => (options.find(([name]) => name === query.get(key)) ?? options[0])[0];
    const some = (key) => (query.has(key) ? query.getAll(key) : null);
    return {
      criterion: p.readCriterion(query),
      show: one("show", SHOWS),
      error: one("error", ERRORS),
      methods: one("methods", METHODS),
      families: some("family"),
      datasets: some("dataset"),
      search: query.get("search") ?? "",
      sort: query.get("sort"),
      down: { down: true, up: false }[query.get("order")] ?? null,
    };
  }

  function keepView(view) {
    const unless = (value, [[preset]]) => (value === preset ? null : value);
    p.keepAddress("leaderboard", {
      criterion: view.criterion ? p.index.criteria[view.criterion].name : null,
      show: unless(view.show, SHOWS),
      error: unless(view.error, ERRORS),
      methods: unless(view.methods, METHODS),
      family: view.families,
      dataset: view.datasets,
      search: view.search,
      sort: view.sort,
      order: view.sort === null ? null : view.down ? "down" : "up",
    });
  }

  // The table that follows from a view

  /*
   * Everything that the table shows. Filters say which table it is, as `plench collect --datasets … --algorithms …`
   * would; the search box only hides rows, and changes no rank.
   */
  function computeBoard(view) {
    const { index } = p;
    const among = (chosen, name) => chosen === null || chosen.includes(name);
    const isShown = ({ family, classical }) =>
      (view.methods === "all" || classical === (view.methods === "classical")) && among(view.families, family);
    const numbersOf = (entries, keep) => entries.map((_, number) => number).filter((number) => keep(entries[number]));
    const settings = numbersOf(index.settings, ({ label }) => among(view.datasets, label));
    const algorithms = numbersOf(index.algorithms, isShown);
    const entries = new Map();
    for (const setting of settings) {
      const ranked = p.rankCells(setting, algorithms, view.criterion);
      for (const algorithm of algorithms) {
        const cell = p.findCell(setting, algorithm, view.criterion);
        entries.set(`${setting},${algorithm}`, describeEntry(view, cell, ranked));
      }
    }
    const entryAt = (setting, algorithm) => entries.get(`${setting},${algorithm}`);
    const labelled = settings.filter((setting) => index.settings[setting].labelled);
    const unlabelled = settings.filter((setting) => !index.settings[setting].labelled);
    const averaged = labelled.length ? labelled : settings;
    const datasets = [...new Set(averaged.map((setting) => index.settings[setting].dataset))];
    const byDataset = datasets.map((name) => {
      const own = averaged.filter((setting) => index.settings[setting].dataset === name);
      return datasetEntries(view, own, algorithms, entryAt);
    });
    // A dataset on which nobody has a rank counts for nobody.
    const counted = byDataset.filter(
      (found) => view.show !== "rank" || algorithms.some((algorithm) => found.get(algorithm).value !== null),
    );
    const averages = new Map(
      algorithms.map((algorithm) => [algorithm, average(counted.map((found) => found.get(algorithm)))]),
    );
    const whole = view.methods === "all" && view.families === null && view.datasets === null;
    if (view.show === "rank" && whole)
      for (const algorithm of algorithms)
        averages.get(algorithm).limits = index.intervals[view.criterion]?.limits[algorithm] ?? null;
    const several = averaged.length > datasets.length;
    return { settings, algorithms, entries, entryAt, averages, datasets, several, whole, unlabelled };
  }

  /** A dataset counts once: each algorithm's mean over the dataset's settings, or the rank of that mean. */
  function datasetEntries(view, settings, algorithms, entryAt) {
    const found = new Map();
    for (const algorithm of algorithms) {
      const entries = settings.map((setting) => entryAt(setting, algorithm));
      const values = entries.map(({ value, cell }) => (view.show === "rank" ? (cell?.mean ?? null) : value));
      const value = values.includes(null) ? null : values.reduce((sum, one) => sum + one, 0) / values.length;
      found.set(algorithm, { value, marks: entries.flatMap((entry) => entry.marks) });
    }
    if (view.show === "rank") {
      const { labelled } = p.index.settings[settings[0]];
      const sign = labelled || p.index.criteria[view.criterion].higher ? 1 : -1;
      const entries = [...found.values()].filter((entry) => entry.value !== null);
      const ranks = p.rankValues(entries.map((entry) => sign * entry.value));
      entries.forEach((entry, number) => (entry.value = entries.length > 1 ? ranks[number] : null));
    }
    return found;
  }

  function describeEntry(view, cell, ranked) {
    if (!cell) return { value: null, cell: null, marks: ["none"] };
    const rank = ranked.of > 1 ? ranked.rank(cell) : null;
    const marks = p.cellMarks(cell, view.show === "regret" ? null : ranked);
    if (cell.mean === null) marks.unshift("none");
    return { value: { accuracy: cell.mean, rank, regret: cell.regret }[view.show], cell, marks };
  }

  /** An average is over all datasets, or there is none: what is missing is never averaged away. */
  function average(entries) {
    const values = entries.map((entry) => entry.value).filter((value) => value !== null);
    const whole = values.length === entries.length && entries.length > 0;
    const marks = ["chance", "diverged", "lacking"].filter((mark) =>
      entries.some((entry) => entry.marks.includes(mark)),
    );
    return {
      value: whole ? values.reduce((sum, value) => sum + value, 0) / values.length : null,
      have: values.length,
      of: entries.length,
      marks: whole ? marks : ["none"],
    };
  }

  // Texts of figures

  const entryText = (view, value) => (view.show === "rank" ? p.rankText(value) : p.percent(value));
  const averageText = (view, value) => (view.show === "rank" ? p.fixed(value, 2) : p.percent(value));

  const limitsText = (limits) => `[${limits.map((limit) => p.fixed(limit, 1)).join(" to ")}]`;

  /** The ± of an entry; null where none is shown. */
  function errorOf(view, entry) {
    if (view.show !== "accuracy" || view.error === "none" || entry.value === null) return null;
    return entry.cell[view.error];
  }

  function fullText(view, entry) {
    if (entry.value === null) return "–";
    const error = errorOf(view, entry);
    return entryText(view, entry.value) + (error === null ? "" : ` ± ${p.percent(error)}`);
  }

  const signNodes = (marks) => p.markNodes(marks.filter((mark) => mark !== "none"));

  function entryNodes(view, entry) {
    if (!entry.cell) return [h("span.quiet", { title: "no run" }, "–"), h("span.unseen", "no run"), signNodes([])];
    const error = errorOf(view, entry);
    return p.cellLink(
      ...entry.cell.at,
      h("span.figure-text", entry.value === null ? "–" : entryText(view, entry.value)),
      entry.value === null ? h("span.unseen", "no figure") : null,
      error === null ? null : h("span.pm", ` ± ${p.percent(error)}`),
      signNodes(entry.marks),
    );
  }

  function averageNodes(view, { value, have, of, marks, limits }) {
    const interval = limits ? h("span.pm", ` ${limitsText(limits)}`) : null;
    if (value !== null) return [h("span.figure-text", averageText(view, value)), interval, signNodes(marks)];
    const title = "An average is given only over all datasets";
    return h("span.quiet", { title }, `– (${have} of ${of})`, signNodes([]));
  }

  /** What the brackets of average ranks are, or why there are none. */
  function rankLimits(view, board) {
    const found = p.index.intervals[view.criterion];
    if (!found || board.datasets.length < 2) return "";
    if (!board.whole) return "Intervals of average ranks are given for the whole table only. ";
    if (found.reason) return `${found.reason[0].toUpperCase()}${found.reason.slice(1)}. `;
    return `In brackets: 95 % interval, bootstrap over ${found.over}. `;
  }

  /** What the figures are, in words, where they stand. */
  function describe(view, board) {
    const criterion = p.index.criteria[view.criterion];
    const once = board.several
      ? " Some datasets have several settings: in the average a dataset counts once, with the mean over its settings."
      : "";
    const chosen = `Each is chosen by ${criterion.title}. ${criterion.meaning}${once}`;
    if (view.show === "rank")
      return `Rank of the mean among the ${board.algorithms.length} algorithms of this table, 1 is best; equal means share their ranks. ${rankLimits(view, board)}${chosen}`;
    if (view.show === "regret")
      return `Test accuracy, in points, that is lost compared with choosing by true labels with early stopping (OA w/ ES) on the same splits; lower is better, and below 0 it did better. ${chosen}`;
    const example = board.algorithms
      .flatMap((algorithm) => board.settings.map((setting) => board.entryAt(setting, algorithm)))
      .find((entry) => errorOf(view, entry) !== null);
    const first = example
      ? `${fullText(view, example)}: mean test accuracy in % over splits ± ${ERROR_WORDS[view.error]}.`
      : "Mean test accuracy in % over splits.";
    return `${first} ${chosen}`;
  }

  function columnsOf(view, board) {
    const { index } = p;
    const down = view.show === "accuracy";
    const mixed = index.algorithms.some((entry) => entry.classical);
    const columns = [
      { key: "name", ...p.algorithmColumn() },
      {
        key: "family",
        title: "Family",
        kind: "family",
        value: (a) => index.algorithms[a].family,
        cell: (a) => [index.algorithms[a].family, mixed ? h("small", ` ${index.algorithms[a].budget}`) : null],
      },
    ];
    if (board.datasets.length > 1) {
      columns.push({
        key: "average",
        title: "Average",
        below: `of ${p.plural(board.datasets.length, "dataset")}`,
        kind: "number average",
        down,
        value: (a) => board.averages.get(a).value,
        cell: (a) => averageNodes(view, board.averages.get(a)),
      });
    }
    for (const setting of board.settings) {
      const { label, labelled } = index.settings[setting];
      columns.push({
        key: `dataset:${label}`,
        title: label,
        below: labelled ? null : `${index.criteria[view.criterion].title} itself, no accuracy`,
        kind: "number",
        down,
        value: (a) => board.entryAt(setting, a).value,
        cellClass: (a) => board.entryAt(setting, a).marks.filter((mark) => CELL_CLASSES.includes(mark)).join(" "),
        cell: (a) => entryNodes(view, board.entryAt(setting, a)),
      });
    }
    return columns;
  }

  const CELL_CLASSES = ["best", "tied", "chance"];

  function matches(search, algorithm) {
    const { name, family, venue } = p.index.algorithms[algorithm];
    const text = `${name} ${family} ${venue}`.toLowerCase();
    const words = search.toLowerCase().split(/\s+/);
    return words.every((word) => text.includes(word));
  }

  // Copying

  const SIGNS = { chance: "!", diverged: "d", lacking: "i" };
  const SIGN_WORDS =
    "Bold: best of a column; italic or underlined: within one standard error of it. (!): below chance; (d): some runs diverged; (i): incomplete; –: no figure.";

  const signs = (marks) => {
    const found = marks.filter((mark) => mark in SIGNS).map((mark) => SIGNS[mark]);
    return found.length ? ` (${found.join(", ")})` : "";
  };

  /** The table as copyButtons takes it: what is on the screen, in its order. */
  function copyable(view, board, ordered) {
    const { index } = p;
    const withAverage = board.datasets.length > 1;
    const labels = board.settings.map((setting) => index.settings[setting].label);
    const entryCell = (entry) => ({
      text: fullText(view, entry) + signs(entry.marks),
      best: entry.marks.includes("best"),
      tied: entry.marks.includes("tied"),
      figures: [entry.value, errorOf(view, entry)],
    });
    const averageCell = ({ value, marks, limits }) => ({
      text: (value === null ? "–" : averageText(view, value) + (limits ? ` ${limitsText(limits)}` : "")) + signs(marks),
      figures: [value],
    });
    const rows = ordered.map((algorithm) => [
      { text: index.algorithms[algorithm].name },
      ...(withAverage ? [averageCell(board.averages.get(algorithm))] : []),
      ...board.settings.map((setting) => entryCell(board.entryAt(setting, algorithm))),
    ]);
    const unlabelled = board.unlabelled.map((setting) => index.settings[setting].label);
    const warning = unlabelled.length
      ? ` ${unlabelled.join(", ")}: no true labels, the figure is ${index.criteria[view.criterion].title} itself.`
      : "";
    return {
      caption: `${describe(view, board)} ${SIGN_WORDS}${warning}`,
      header: ["Algorithm", ...(withAverage ? ["Average"] : []), ...labels],
      rows,
      figureNames: view.show === "accuracy" && view.error !== "none" ? ["mean", view.error] : [""],
    };
  }

  // Around the table

  function notes(board) {
    const found = [];
    for (const setting of board.settings) {
      for (const algorithm of board.algorithms) {
        const { cell } = board.entryAt(setting, algorithm);
        if (!cell || cell.note) found.push({ algorithm, setting, cell });
      }
    }
    if (!found.length) return h("p.quiet", "Every cell has all its planned runs.");
    const all = p.count(board.settings.length * board.algorithms.length);
    return p.folded(
      `Notes on ${p.plural(found.length, "cell")} of ${all}: missing runs and warnings`,
      p.table({
        caption: "Notes on cells",
        rows: found,
        columns: [
          p.algorithmColumn((row) => row.algorithm),
          { ...p.datasetColumn((row) => row.setting), header: false, kind: null },
          p.column("Note", ({ cell }) => cell?.note ?? "no run", {
            cell: ({ cell }) => (cell ? p.cellLink(...cell.at, cell.note) : "no run"),
          }),
        ],
      }),
    );
  }

  function markList(board) {
    const used = new Set([...board.entries.values()].flatMap((entry) => entry.marks));
    const marks = Object.keys(MARKS).filter((mark) => used.has(mark));
    return h(
      "dl.marks",
      marks.map((mark) => h("div", h(`dt.sign.${mark}`, MARKS[mark][0]), h("dd", MARKS[mark][1]))),
    );
  }

  function unlabelledWarning(view, board) {
    if (!board.unlabelled.length) return null;
    const { title, labels } = p.index.criteria[view.criterion];
    const names = board.unlabelled.map((setting) => p.index.settings[setting].label).join(", ");
    const told = labels
      ? "which needs labels, so there are none"
      : "by which the algorithms are ranked; they are not accuracies and enter no average with accuracies";
    return h(
      "p.warning",
      `${names}: no true labels are known, so no accuracy can be given. The figures there are ${title} itself on the validation set, ${told}.`,
    );
  }

  function sortedTable(view, board, rows) {
    const columns = columnsOf(view, board);
    const asked = columns.findIndex((entry) => entry.key === view.sort);
    const column = asked < 0 ? Math.min(2, columns.length - 1) : asked;
    const down = asked < 0 ? view.show === "accuracy" : (view.down ?? Boolean(columns[column].down));
    const [, what] = SHOWS.find(([key]) => key === view.show);
    return p.table({
      caption: `Leaderboard, ${what.toLowerCase()}, chosen by ${p.index.criteria[view.criterion].title}`,
      kind: "wide",
      columns,
      rows,
      sort: { column, down },
      changed: (state) => {
        view.sort = columns[state.column].key;
        view.down = state.down;
        keepView(view);
        p.say(`Sorted by ${columns[state.column].title}, ${state.down ? "descending" : "ascending"}`);
      },
    });
  }

  function leaderboard(query) {
    const { index } = p;
    const view = readView(query);
    const place = h("div.board");
    const explained = h("p.explained");
    const set = (key) => (value) => {
      view[key] = value;
      update();
    };
    const errorChoice = p.choice("±", "error", ERRORS, view.error, set("error"));

    function update() {
      keepView(view);
      const board = computeBoard(view);
      const rows = board.algorithms.filter((algorithm) => matches(view.search, algorithm));
      explained.textContent = describe(view, board);
      errorChoice.hidden = view.show !== "accuracy";
      const empty = !board.settings.length ? "No dataset is chosen." : !rows.length ? "No algorithm matches." : null;
      const shown = empty ? null : sortedTable(view, board, rows);
      const parts = [
        unlabelledWarning(view, board),
        shown ?? h("p.quiet", empty),
        markList(board),
        h(
          "div.below",
          shown ? p.copyButtons(() => copyable(view, board, shown.ordered)) : null,
          h("span.quiet", `${rows.length} of ${p.plural(index.algorithms.length, "algorithm")}`),
        ),
        notes(board),
      ];
      place.replaceChildren(...parts.filter(Boolean));
    }

    const families = [...new Set(index.algorithms.map((entry) => entry.family))].sort(p.compare);
    const kinds = new Set(index.algorithms.map((entry) => entry.classical));
    const labels = index.settings.map((entry) => entry.label);
    const datasets = new Set(index.settings.map((entry) => entry.dataset)).size;
    const search = h("input", {
      type: "search",
      value: view.search,
      placeholder: "name, family, venue",
      oninput: (event) => set("search")(event.target.value.trim()),
    });
    const controls = h(
      "form.controls",
      { role: "search", "aria-label": "What the table shows", onsubmit: (event) => event.preventDefault() },
      p.criterionChoice(view.criterion, set("criterion")),
      p.choice("Show", "show", SHOWS, view.show, set("show")),
      errorChoice,
      kinds.size > 1 ? p.choice("Methods", "methods", METHODS, view.methods, set("methods")) : null,
      families.length > 1 ? p.several("Families", families, view.families, set("families")) : null,
      labels.length > 1 ? p.several("Datasets", labels, view.datasets, set("datasets")) : null,
      h("label.field", h("span", "Search"), search),
    );
    update();
    const numbers = [
      p.plural(index.algorithms.length, "algorithm"),
      p.plural(datasets, "dataset") + (labels.length > datasets ? ` in ${labels.length} settings` : ""),
      p.plural(index.runs, "run"),
    ];
    return [
      h("h1", "Leaderboard"),
      h("p.lead", `${numbers.join(", ")}.`),
      index.progress.complete ? null : p.progressNote(),
      controls,
      explained,
      place,
    ];
  }

  Object.assign(p, { readView, computeBoard });
  p.pages.leaderboard = { title: () => "Leaderboard", show: leaderboard };
})();
