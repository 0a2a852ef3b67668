// Provenance: progress, versions, commands, what went wrong, downloads.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const MOST_UNFOLDED = 20;

  const statusText = (statuses) => statuses.map(([status, n]) => `${p.count(n)} ${status}`).join(", ");

  /** How far an unfinished sweep is. */
  function progressNote({ here = false } = {}) {
    const { planned, finished, statuses } = p.index.progress;
    const others = statusText(statuses.filter(([status]) => !["done", "diverged"].includes(status)));
    return h(
      "div.progress",
      h(
        "p",
        h("strong", "Not finished. "),
        `${p.count(finished)} of ${p.count(planned)} planned runs have ended${others ? `; ${others}` : ""}. `,
        here ? null : h("a", { href: "#/provenance" }, "More"),
      ),
      h("progress", { max: planned, value: finished, "aria-label": "Planned runs that have ended" }),
    );
  }

  function showProvenance() {
    const { complete, planned } = p.index.progress;
    return [
      h("h1", "Provenance"),
      complete
        ? h("p.lead", `All ${p.plural(planned, "planned run")} have ended.`)
        : progressNote({ here: true }),
      p.later("provenance", details),
    ];
  }

  const counted = (values) =>
    values
      .map(([value, n]) => (values.length === 1 && n === p.index.runs ? value : `${value} (${p.plural(n, "run")})`))
      .join(", ");
  const when = (text) => text.replace("T", " ").replace(/\+00:00$/, " UTC");

  function details(data) {
    const { index } = p;
    const others = data.origins.length > 1 || data.origins[0]?.[0] !== "plench";
    const facts = [
      ["protocol", counted(data.protocols) || "unknown"],
      ["runs", `${p.count(index.runs)}: ${statusText(index.progress.statuses)}`],
      ["records", p.count(data.records)],
      data.seconds ? ["training, all runs", p.duration(data.seconds)] : null,
      data.begun ? ["first run started", when(data.begun)] : null,
      data.written ? ["last record", when(data.written)] : null,
      others ? ["made by", counted(data.origins)] : null,
    ];
    const versions = [...data.versions, ...(data.commits.length ? [["commit", data.commits]] : [])];
    return [
      p.facts(facts.filter(Boolean)),
      downloads(),
      troubles(data),
      h("h2", data.warnings.length ? "What was left out, and what to know" : "What was left out"),
      data.warnings.length
        ? h(
            "ul.plainlist",
            data.warnings.map((text) => h("li", text)),
          )
        : h("p", "Nothing: every file was read completely."),
      h("h2", "Versions"),
      data.versions.length
        ? p.facts(versions.map(([name, values]) => [name, counted(values)]))
        : h("p.quiet", "The records do not say."),
      h("h2", "Commands"),
      h("p", "This page:"),
      p.code(data.command, "the command of this page"),
      data.sweeps.map(([name, text, command]) => [
        h("p", "The sweep; save this file and repeat it (RUNS: a new folder, DATA: the folder of the data files):"),
        p.code(command, "the command of the sweep"),
        p.folded(name, p.code(text, name)),
      ]),
    ];
  }

  function downloads() {
    const names = p.index.downloads;
    const links = names.map((name) => h("li", h("a", { href: `download/${name}`, download: name }, name)));
    return [
      h("h2", "The data"),
      h(
        "p",
        "Everything that is shown, as tables with a row per cell, per choice and per run, and all records. Accuracies are fractions.",
      ),
      h("ul.downloads", links),
      names.includes("results.parquet")
        ? h(
            "p.quiet",
            h("code", "results.parquet"),
            " has a row per record. plench reads it like the folders of the runs: ",
            h("code", "plench collect results.parquet"),
            ".",
          )
        : null,
    ];
  }

  const RUN_COLUMNS = [
    p.column("Algorithm", (row) => row[1], { header: true }),
    p.column("Dataset", (row) => row[2]),
    p.numbers("Split", (row) => row[3], String),
    p.numbers("Configuration", (row) => row[4], String),
  ];

  /** The runs that failed, have not finished, or diverged. */
  function troubles(data) {
    const traceback = (text) => h("pre", { tabindex: 0, role: "region", "aria-label": "traceback" }, text);
    const message = (row) => (row[6] ? h("details", h("summary", row[5]), traceback(row[6])) : row[5]);
    const step = (row) => `${p.count(row[6])}${row[7] === null ? "" : ` of ${p.count(row[7])}`}`;
    const diverged =
      "A loss or output became NaN or infinite. Such a run may be chosen at a checkpoint before that, but not by OA, which takes the last.";
    const kinds = [
      {
        title: "Failures",
        rows: data.failures,
        caption: "Runs that failed",
        columns: [p.column("Message", (row) => row[5], { kind: "long", cell: message })],
      },
      {
        title: "Not finished",
        rows: data.unfinished,
        caption: "Runs that have not finished",
        columns: [p.column("Status", (row) => row[5]), { ...p.numbers("Step", (row) => row[6]), cell: step }],
      },
      {
        title: "Diverged",
        rows: data.diverged,
        caption: "Runs that diverged",
        note: h("p.quiet", diverged),
        columns: [p.numbers("After step", (row) => row[5])],
      },
    ];
    return kinds
      .filter(({ rows }) => rows.length)
      .map(({ title, rows, caption, note, columns }) => {
        const table = p.table({ caption, rows, columns: [...RUN_COLUMNS, ...columns] });
        const shown = rows.length > MOST_UNFOLDED ? p.folded("Which they are", table) : table;
        return [h("h2", `${title} (${rows.length})`), note, shown];
      });
  }

  Object.assign(p, { progressNote });
  p.pages.provenance = { title: () => "Provenance", show: showProvenance };
})();
