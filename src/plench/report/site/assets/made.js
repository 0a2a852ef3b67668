// How it was made: progress, versions, commands, what went wrong, downloads.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  /** How far an unfinished sweep is. */
  function progressNote({ here = false } = {}) {
    const { planned, finished, statuses } = p.index.progress;
    const others = statuses
      .filter(([status]) => !["done", "diverged"].includes(status))
      .map(([status, n]) => `${p.count(n)} ${status}`);
    return h(
      "div",
      { class: "progress" },
      h(
        "p",
        {},
        h("strong", {}, "Not finished. "),
        `${p.count(finished)} of ${p.count(planned)} planned runs have ended${others.length ? `; ${others.join(", ")}` : ""}. `,
        here ? null : h("a", { href: "#/made" }, "More"),
      ),
      h("progress", { max: planned, value: finished, "aria-label": "Planned runs that have ended" }),
    );
  }

  function showMade() {
    const { index } = p;
    return [
      p.heading("How it was made"),
      index.progress.complete
        ? h("p", { class: "lead" }, `All ${p.plural(index.progress.planned, "planned run")} have ended.`)
        : progressNote({ here: true }),
      p.later("made", details),
    ];
  }

  const counted = (values, whole) =>
    values
      .map(([value, n]) => (values.length === 1 && n === whole ? value : `${value} (${p.plural(n, "run")})`))
      .join(", ");
  const when = (text) => text.replace("T", " ").replace(/\+00:00$/, " UTC");

  function details(data) {
    const { index } = p;
    const facts = [
      ["protocol", counted(data.protocols, index.runs) || "unknown"],
      [
        "runs",
        `${p.count(index.runs)}: ${index.progress.statuses.map(([status, n]) => `${p.count(n)} ${status}`).join(", ")}`,
      ],
      ["records", p.count(data.records)],
      data.seconds ? ["training, all runs", p.duration(data.seconds)] : null,
      data.begun ? ["first run begun", when(data.begun)] : null,
      data.written ? ["last record", when(data.written)] : null,
      data.origins.length > 1 || data.origins[0]?.[0] !== "plench"
        ? ["made by", counted(data.origins, index.runs)]
        : null,
    ].filter(Boolean);
    return [
      p.facts(facts),
      h("h2", {}, "The data"),
      h(
        "p",
        {},
        "Everything that is shown, as tables with a row per cell, per choice and per run, and all records. Accuracies are fractions.",
      ),
      h(
        "ul",
        { class: "downloads" },
        index.downloads.map((name) => h("li", {}, h("a", { href: `download/${name}`, download: name }, name))),
      ),
      index.downloads.includes("results.parquet")
        ? h(
            "p",
            { class: "quiet" },
            h("code", {}, "results.parquet"),
            " has a row per record. plench reads it like the folders of the runs: ",
            h("code", {}, "plench collect results.parquet"),
            ".",
          )
        : null,
      failures(data.failures),
      unfinished(data.unfinished),
      diverged(data.diverged),
      notices(data.notices),
      h("h2", {}, "Versions"),
      data.versions.length
        ? p.facts([
            ...data.versions.map(([name, values]) => [name, counted(values, index.runs)]),
            ...(data.commits.length ? [["commit", counted(data.commits, index.runs)]] : []),
          ])
        : h("p", { class: "quiet" }, "The records do not say."),
      h("h2", {}, "Commands"),
      h("p", {}, "This page:"),
      p.code(data.command, "the command of this page"),
      data.sweeps.map(([name, text]) => [
        h("p", {}, "The sweep; save this file and repeat it:"),
        p.code(`plench sweep launch --file ${name}`, "the command of the sweep"),
        h("details", { class: "notes" }, h("summary", {}, name), p.code(text, name)),
      ]),
    ];
  }

  /** A table behind its title when it is long. */
  const folded = (title, table, n) =>
    n > 20 ? h("details", { class: "notes" }, h("summary", {}, title), table) : table;

  const place = [
    { title: "Algorithm", header: true, value: (row) => row[1], cell: (row) => row[1] },
    { title: "Dataset", value: (row) => row[2], cell: (row) => row[2] },
    { title: "Split", kind: "number", value: (row) => row[3], cell: (row) => String(row[3]) },
    { title: "Configuration", kind: "number", value: (row) => row[4], cell: (row) => String(row[4]) },
  ];

  function failures(rows) {
    if (!rows.length) return null;
    return [
      h("h2", {}, `Failures (${rows.length})`),
      p.table({
        caption: "Runs that failed",
        rows,
        columns: [
          ...place,
          {
            title: "Message",
            kind: "long",
            value: (row) => row[5],
            cell: (row) =>
              row[6]
                ? h(
                    "details",
                    {},
                    h("summary", {}, row[5]),
                    h("pre", { tabindex: 0, role: "region", "aria-label": "traceback" }, row[6]),
                  )
                : row[5],
          },
        ],
      }),
    ];
  }

  function unfinished(rows) {
    if (!rows.length) return null;
    return [
      h("h2", {}, `Not finished (${rows.length})`),
      folded(
        "Which they are",
        p.table({
          caption: "Runs that have not finished",
          rows,
          columns: [
            ...place,
            { title: "Status", value: (row) => row[5], cell: (row) => row[5] },
            {
              title: "Step",
              kind: "number",
              value: (row) => row[6],
              cell: (row) => `${p.count(row[6])}${row[7] === null ? "" : ` of ${p.count(row[7])}`}`,
            },
          ],
        }),
        rows.length,
      ),
    ];
  }

  function diverged(rows) {
    if (!rows.length) return null;
    return [
      h("h2", {}, `Diverged (${rows.length})`),
      h(
        "p",
        { class: "quiet" },
        "A loss or output became NaN or infinite. Such a run may be chosen at a checkpoint before that, but not by OA, which takes the last.",
      ),
      folded(
        "Which they are",
        p.table({
          caption: "Runs that diverged",
          rows,
          columns: [
            ...place,
            {
              title: "After step",
              kind: "number",
              value: (row) => row[5],
              cell: (row) => (row[5] === null ? "–" : p.count(row[5])),
            },
          ],
        }),
        rows.length,
      ),
    ];
  }

  function notices(texts) {
    if (!texts.length) return [h("h2", {}, "What was left out"), h("p", {}, "Nothing: every file was read whole.")];
    return [
      h("h2", {}, "What was left out, and what to know"),
      h(
        "ul",
        { class: "plainlist" },
        texts.map((text) => h("li", {}, text)),
      ),
    ];
  }

  Object.assign(p, { progressNote });
  p.pages.made = { title: () => "How it was made", show: showMade };
})();
