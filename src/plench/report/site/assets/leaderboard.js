// The leaderboard: algorithms × datasets for one criterion.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const { SHOWS, ERRORS, ERROR_WORDS, MARKS, readView, viewAddress, computeBoard } = p;
  const SPOKEN = {
    best: "best",
    tied: "within noise of the best",
    chance: "below chance",
    diverged: "some runs diverged",
    lacking: "incomplete",
  };

  function markNodes(marks) {
    return h(
      "span",
      { class: "signs" },
      marks
        .filter((mark) => mark !== "none")
        .map((mark) => [
          h("span", { class: `sign ${mark}`, "aria-hidden": "true", title: MARKS[mark][1] }, MARKS[mark][0]),
          h("span", { class: "unseen" }, `, ${SPOKEN[mark]}`),
        ]),
    );
  }

  function showValue(view, value) {
    if (view.show === "rank") return p.fixed(value, Number.isInteger(value) ? 0 : 1);
    if (view.show === "regret") return p.fixed(100 * value, 2).replace("-", "−");
    return p.percent(value);
  }

  function entryText(view, entry) {
    if (entry.value === null) return "–";
    const error = view.show === "accuracy" && view.error !== "none" ? entry.cell[view.error] : null;
    return showValue(view, entry.value) + (error === null ? "" : ` ± ${p.percent(error)}`);
  }

  function entryNodes(view, setting, algorithm, entry) {
    if (!entry.cell)
      return [
        h("span", { class: "quiet", title: "no run" }, "–"),
        h("span", { class: "unseen" }, "no run"),
        markNodes([]),
      ];
    const error = view.show === "accuracy" && view.error !== "none" ? entry.cell[view.error] : null;
    const text = entry.value === null ? "–" : showValue(view, entry.value);
    return p.cellLink(
      setting,
      algorithm,
      view.criterion,
      h("span", { class: "figure-text" }, text),
      entry.value === null ? h("span", { class: "unseen" }, "no figure") : null,
      error !== null && entry.value !== null ? h("span", { class: "pm" }, ` ± ${p.percent(error)}`) : null,
      markNodes(entry.marks),
    );
  }

  function averageNodes(view, average) {
    if (average.value === null)
      return h(
        "span",
        { class: "quiet", title: "An average is given only over all datasets" },
        `– (${average.have} of ${average.of})`,
        markNodes([]),
      );
    const text = view.show === "rank" ? p.fixed(average.value, 2) : showValue(view, average.value);
    return [h("span", { class: "figure-text" }, text), markNodes(average.marks)];
  }

  const entryClass = (entry) => entry.marks.filter((mark) => ["best", "tied", "chance"].includes(mark)).join(" ");

  /** What the figures are, in words, where they stand. */
  function describe(view, board) {
    const criterion = p.index.criteria[view.criterion];
    const chosen = `Each is chosen by ${criterion.title}. ${criterion.meaning}`;
    const known = board.algorithms.flatMap((algorithm) =>
      board.settings.map((setting) => board.entries.get(`${setting},${algorithm}`)),
    );
    const example = known.find(
      (entry) => entry.value !== null && entry.cell[view.error] !== null && view.error !== "none",
    );
    if (view.show === "rank")
      return `Rank of the mean among the ${board.algorithms.length} algorithms of this table, 1 is best; equal means share their ranks. ${chosen}`;
    if (view.show === "regret")
      return `Test accuracy, in points, that is lost against choosing by true labels with early stopping (OA w/ ES) on the same splits; lower is better, and below 0 it did better. ${chosen}`;
    const first = example
      ? `${entryText(view, example)}: mean test accuracy in % over splits ± ${ERROR_WORDS[view.error]}.`
      : "Mean test accuracy in % over splits.";
    return `${first} ${chosen}`;
  }

  function columnsOf(view, board) {
    const { index } = p;
    const low = view.show === "accuracy";
    const mixed = index.algorithms.some((entry) => entry.classical);
    const columns = [
      {
        key: "name",
        title: "Algorithm",
        header: true,
        kind: "name",
        value: (a) => index.algorithms[a].name,
        cell: (a) => [p.algorithmLink(a)],
      },
      {
        key: "family",
        title: "Family",
        kind: "family",
        value: (a) => index.algorithms[a].family,
        cell: (a) => [index.algorithms[a].family, mixed ? h("small", {}, ` ${index.algorithms[a].budget}`) : null],
      },
    ];
    if (board.settings.length > 1) {
      const over = board.averaged.length;
      columns.push({
        key: "average",
        title: "Average",
        below: `of ${p.plural(over, "dataset")}`,
        kind: "number average",
        down: low,
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
        down: low,
        value: (a) => board.entries.get(`${setting},${a}`).value,
        cellClass: (a) => entryClass(board.entries.get(`${setting},${a}`)),
        cell: (a) => entryNodes(view, setting, a, board.entries.get(`${setting},${a}`)),
      });
    }
    return columns;
  }

  function matches(search, algorithm) {
    const { name, family, venue } = p.index.algorithms[algorithm];
    const text = `${name} ${family} ${venue}`.toLowerCase();
    return search
      .toLowerCase()
      .split(/\s+/)
      .every((word) => text.includes(word));
  }

  /** The table as copying.js takes it: what is on the screen, in its order. */
  function copyable(view, board, ordered) {
    const withAverage = board.settings.length > 1;
    const header = [
      "Algorithm",
      ...(withAverage ? ["Average"] : []),
      ...board.settings.map((setting) => p.index.settings[setting].label),
    ];
    const names = view.show === "accuracy" && view.error !== "none" ? ["mean", view.error] : [""];
    const rows = ordered.map((algorithm) => {
      const average = board.averages.get(algorithm);
      const entries = board.settings.map((setting) => {
        const entry = board.entries.get(`${setting},${algorithm}`);
        const figures =
          entry.value === null ? null : names.length > 1 ? [entry.value, entry.cell[view.error]] : [entry.value];
        return {
          text: entryText(view, entry) + signs(entry.marks),
          best: entry.marks.includes("best"),
          tied: entry.marks.includes("tied"),
          figures,
        };
      });
      const shown =
        average.value === null
          ? "–"
          : view.show === "rank"
            ? p.fixed(average.value, 2)
            : showValue(view, average.value);
      const averageCell = {
        text: shown + signs(average.marks),
        figures: average.value === null ? null : [average.value, ...(names.length > 1 ? [null] : [])],
      };
      return [{ text: p.index.algorithms[algorithm].name }, ...(withAverage ? [averageCell] : []), ...entries];
    });
    const marks =
      "Bold: best of a column; italic or underlined: within one standard error of it. (!): below chance; (d): some runs diverged; (i): incomplete; –: no figure.";
    const unlabelled = board.unlabelled.map((setting) => p.index.settings[setting].label);
    const warning = unlabelled.length
      ? ` ${unlabelled.join(", ")}: no true labels, the figure is ${p.index.criteria[view.criterion].title} itself.`
      : "";
    return { caption: `${describe(view, board)} ${marks}${warning}`, header, rows, figureNames: names };
  }

  const signs = (marks) => {
    const found = [
      ["chance", "!"],
      ["diverged", "d"],
      ["lacking", "i"],
    ]
      .filter(([mark]) => marks.includes(mark))
      .map(([, sign]) => sign);
    return found.length ? ` (${found.join(", ")})` : "";
  };

  function notes(board, view) {
    const found = [];
    for (const setting of board.settings) {
      for (const algorithm of board.algorithms) {
        const { cell } = board.entries.get(`${setting},${algorithm}`);
        if (!cell) found.push([algorithm, setting, "no run"]);
        else if (cell.note) found.push([algorithm, setting, cell.note]);
      }
    }
    if (!found.length) return h("p", { class: "quiet" }, "Every cell has all its planned runs.");
    return h(
      "details",
      { class: "notes" },
      h(
        "summary",
        {},
        `What ${p.plural(found.length, "cell")} of ${p.count(board.settings.length * board.algorithms.length)} lack or what to know of them`,
      ),
      p.table({
        caption: "What cells lack",
        rows: found,
        columns: [
          {
            title: "Algorithm",
            header: true,
            value: (row) => p.index.algorithms[row[0]].name,
            cell: (row) => p.algorithmLink(row[0]),
          },
          { title: "Dataset", value: (row) => p.index.settings[row[1]].label, cell: (row) => p.datasetLink(row[1]) },
          {
            title: "Note",
            value: (row) => row[2],
            cell: (row) =>
              p.findCell(row[1], row[0], view.criterion) ? p.cellLink(row[1], row[0], view.criterion, row[2]) : row[2],
          },
        ],
      }),
    );
  }

  function markList(view, board) {
    const used = new Set([...board.entries.values()].flatMap((entry) => entry.marks));
    return h(
      "dl",
      { class: "marks" },
      Object.entries(MARKS)
        .filter(([mark]) => used.has(mark))
        .map(([mark, [sign, words]]) => h("div", {}, h("dt", { class: `sign ${mark}` }, sign), h("dd", {}, words))),
    );
  }

  function leaderboard(query) {
    const view = readView(query);
    const place = h("div", { class: "board" });
    const explained = h("p", { class: "explained" });
    const set = (key) => (value) => {
      view[key] = value;
      update();
    };
    const errorChoice = p.choice("±", "error", ERRORS, view.error, set("error"));
    let shown = null;

    function update() {
      p.keepAddress("leaderboard", viewAddress(view));
      const board = computeBoard(view);
      const columns = columnsOf(view, board);
      const rows = board.algorithms.filter((algorithm) => matches(view.search, algorithm));
      const preset = view.show === "accuracy";
      let column = columns.findIndex((entry) => entry.key === view.sort);
      const down = column < 0 ? preset : (view.down ?? Boolean(columns[column].down));
      if (column < 0) column = Math.min(2, columns.length - 1);
      explained.textContent = describe(view, board);
      errorChoice.hidden = view.show !== "accuracy";
      const empty = !board.settings.length ? "No dataset is chosen." : !rows.length ? "No algorithm matches." : null;
      shown = empty
        ? null
        : p.table({
            caption: `Leaderboard, ${SHOWS.find(([key]) => key === view.show)[1].toLowerCase()}, chosen by ${p.index.criteria[view.criterion].title}`,
            kind: "wide",
            columns,
            rows,
            sort: { column, down },
            changed: (state) => {
              view.sort = columns[state.column].key;
              view.down = state.down;
              p.keepAddress("leaderboard", viewAddress(view));
              p.say(`Sorted by ${columns[state.column].title}, ${state.down ? "descending" : "ascending"}`);
            },
          });
      const unlabelled = board.unlabelled.map((setting) => p.index.settings[setting].label);
      place.replaceChildren(
        ...(unlabelled.length
          ? [
              h(
                "p",
                { class: "warning" },
                `${unlabelled.join(", ")}: no true labels are known, so no accuracy can be given. The figures there are ${p.index.criteria[view.criterion].title} itself on the validation set, ${p.index.criteria[view.criterion].labels ? "which needs labels, so there are none" : "by which the algorithms are ranked; they are not accuracies and enter no average with accuracies"}.`,
              ),
            ]
          : []),
        shown ?? h("p", { class: "quiet" }, empty),
        markList(view, board),
        h(
          "div",
          { class: "below" },
          shown ? p.copyButtons(() => copyable(view, board, shown.ordered)) : null,
          h("span", { class: "quiet" }, `${rows.length} of ${p.plural(p.index.algorithms.length, "algorithm")}`),
        ),
        notes(board, view),
      );
    }

    const families = [...new Set(p.index.algorithms.map((entry) => entry.family))].sort(p.compare);
    const kinds = new Set(p.index.algorithms.map((entry) => entry.classical));
    const controls = h(
      "form",
      {
        class: "controls",
        role: "search",
        "aria-label": "What the table shows",
        onsubmit: (event) => event.preventDefault(),
      },
      p.criterionChoice(view.criterion, set("criterion")),
      p.choice("Show", "show", SHOWS, view.show, set("show")),
      errorChoice,
      kinds.size > 1
        ? p.choice(
            "Methods",
            "methods",
            [
              ["all", "all"],
              ["deep", "deep"],
              ["classical", "classical"],
            ],
            view.methods,
            set("methods"),
          )
        : null,
      families.length > 1 ? p.several("Families", families, view.families, set("families")) : null,
      p.index.settings.length > 1
        ? p.several(
            "Datasets",
            p.index.settings.map((entry) => entry.label),
            view.datasets,
            set("datasets"),
          )
        : null,
      h(
        "label",
        { class: "field" },
        h("span", {}, "Search"),
        h("input", {
          type: "search",
          value: view.search,
          placeholder: "name, family, venue",
          oninput: (event) => set("search")(event.target.value.trim()),
        }),
      ),
    );
    update();
    const { progress } = p.index;
    return [
      p.heading(
        "Leaderboard",
        h(
          "p",
          { class: "lead" },
          `${p.plural(p.index.algorithms.length, "algorithm")}, ${p.plural(p.index.settings.length, "dataset")}, ${p.plural(p.index.runs, "run")}.`,
        ),
      ),
      progress.complete ? null : p.progressNote(),
      controls,
      explained,
      place,
    ];
  }

  Object.assign(p, { markNodes });
  p.pages.leaderboard = { title: () => "Leaderboard", show: leaderboard };
})();
