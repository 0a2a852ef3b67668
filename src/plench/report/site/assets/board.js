// What the leaderboard shows: the view that an address names, and the table that follows from it.
(function () {
  "use strict";
  const p = window.plench;

  const SHOWS = [
    ["accuracy", "Accuracy", "Mean test accuracy over splits"],
    ["rank", "Rank", "Rank of the mean among the algorithms shown, 1 is best"],
    ["regret", "Regret", "Test accuracy lost against choosing by true labels with early stopping"],
  ];
  const ERRORS = [
    ["std", "std", "Sample standard deviation over splits"],
    ["se", "s.e.", "Standard error of the mean"],
    ["none", "none", "No ±"],
  ];
  const ERROR_WORDS = {
    std: "the sample standard deviation over splits (divisor n − 1)",
    se: "the standard error of the mean, the standard deviation over √n splits",
  };

  /** The view that an address names; what it does not name is the default. */
  function readView(query) {
    const one = (key, known, fallback) => (known.includes(query.get(key)) ? query.get(key) : fallback);
    const some = (key) => (query.has(key) ? query.getAll(key) : null);
    return {
      criterion: p.readCriterion(query),
      show: one(
        "show",
        SHOWS.map((entry) => entry[0]),
        "accuracy",
      ),
      error: one(
        "error",
        ERRORS.map((entry) => entry[0]),
        "std",
      ),
      methods: one("methods", ["all", "deep", "classical"], "all"),
      families: some("family"),
      datasets: some("dataset"),
      search: query.get("search") ?? "",
      sort: query.get("sort"),
      down: query.get("order") === "down" ? true : query.get("order") === "up" ? false : null,
    };
  }

  function viewAddress(view) {
    return {
      criterion: view.criterion ? p.index.criteria[view.criterion].name : null,
      show: view.show === "accuracy" ? null : view.show,
      error: view.error === "std" ? null : view.error,
      methods: view.methods === "all" ? null : view.methods,
      family: view.families ?? [],
      dataset: view.datasets ?? [],
      search: view.search,
      sort: view.sort,
      order: view.sort === null ? null : view.down ? "down" : "up",
    };
  }

  /*
   * Everything that the table shows. Filters say which table it is, as `plench collect --datasets … --algorithms …`
   * would; the search box only hides rows, and changes no rank.
   */
  function computeBoard(view) {
    const { index } = p;
    const { criterion } = view;
    const settings = index.settings
      .map((_, number) => number)
      .filter((number) => view.datasets === null || view.datasets.includes(index.settings[number].label));
    const algorithms = index.algorithms
      .map((_, number) => number)
      .filter((number) => {
        const { family, classical } = index.algorithms[number];
        if (view.methods !== "all" && classical !== (view.methods === "classical")) return false;
        return view.families === null || view.families.includes(family);
      });
    const entries = new Map();
    for (const setting of settings) {
      const upwards = index.settings[setting].labelled || index.criteria[criterion].higher;
      const cells = algorithms.map((algorithm) => p.findCell(setting, algorithm, criterion));
      const known = cells.filter((cell) => cell && cell.mean !== null);
      const ranks = p.rankValues(known.map((cell) => (upwards ? cell.mean : -cell.mean)));
      const best = known.reduce(
        (top, cell) => (top && (upwards ? top.mean >= cell.mean : top.mean <= cell.mean) ? top : cell),
        null,
      );
      algorithms.forEach((algorithm, number) => {
        const cell = cells[number];
        const place = known.indexOf(cell);
        entries.set(
          `${setting},${algorithm}`,
          describeEntry(view, setting, cell, best, upwards, known.length > 1 && place >= 0 ? ranks[place] : null),
        );
      });
    }
    const labelled = settings.filter((setting) => index.settings[setting].labelled);
    const averaged = labelled.length ? labelled : settings;
    const averages = new Map(
      algorithms.map((algorithm) => [algorithm, averageEntry(view, averaged, algorithm, entries, algorithms)]),
    );
    return {
      settings,
      algorithms,
      entries,
      averages,
      averaged,
      unlabelled: settings.filter((setting) => !index.settings[setting].labelled),
    };
  }

  function describeEntry(view, setting, cell, best, upwards, rank) {
    if (!cell) return { value: null, cell: null, marks: ["none"] };
    const { chance, labelled } = p.index.settings[setting];
    const value = { accuracy: cell.mean, rank: cell.mean === null ? null : rank, regret: cell.regret }[view.show];
    const marks = [];
    const isBest = cell.mean !== null && p.isBest(cell, best);
    const tied = cell.mean !== null && !isBest && upwards && p.isWithin(cell, best);
    if (cell.mean === null) marks.push("none");
    else if (view.show !== "regret" && isBest) marks.push("best");
    else if (view.show !== "regret" && tied) marks.push("tied");
    if (labelled && cell.mean !== null && chance !== null && cell.mean < chance) marks.push("chance");
    if (cell.diverged) marks.push("diverged");
    if (cell.lacking) marks.push("lacking");
    return { value, cell, marks };
  }

  /** An average is over all datasets or it is none: what is missing is never averaged away. */
  function averageEntry(view, settings, algorithm, entries, algorithms) {
    const counted =
      view.show === "rank"
        ? settings.filter((setting) => algorithms.some((other) => entries.get(`${setting},${other}`).value !== null))
        : settings;
    const own = counted.map((setting) => entries.get(`${setting},${algorithm}`));
    const values = own.map((entry) => entry.value).filter((value) => value !== null);
    const marks = ["chance", "diverged", "lacking"].filter((mark) => own.some((entry) => entry.marks.includes(mark)));
    const whole = values.length === counted.length && counted.length > 0;
    return {
      value: whole ? p.mean(values) : null,
      have: values.length,
      of: counted.length,
      marks: whole ? marks : ["none"],
    };
  }

  const MARKS = {
    best: ["●", "best of its column"],
    tied: ["○", "within one standard error (the best cell's own) of the best"],
    chance: ["▼", "below chance: less than 1 / number of classes"],
    diverged: ["†", "some of its runs diverged; they count with checkpoints before that, or not at all"],
    lacking: ["◔", "rests on fewer runs or splits than planned"],
    none: ["–", "no figure; a row with one has no average"],
  };

  Object.assign(p, { SHOWS, ERRORS, ERROR_WORDS, MARKS, readView, viewAddress, computeBoard });
})();
