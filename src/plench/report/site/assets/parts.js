// Parts that several pages share: controls, tables that sort, links, what the index holds.
(function () {
  "use strict";
  const { h, address, copyText, FORMATS } = window.plench;

  let index = null;

  /** Make the look-ups of the index once. */
  function useIndex(content) {
    index = content;
    index.cellAt = new Map(index.cells.map((cell) => [cell.at.join(), cell]));
    index.algorithmAt = new Map(index.algorithms.map((entry, number) => [entry.name, number]));
    index.settingAt = new Map(index.settings.map((entry, number) => [entry.label, number]));
    index.criterionAt = new Map(index.criteria.map((entry, number) => [entry.name, number]));
    window.plench.index = index;
  }

  function findCell(setting, algorithm, criterion) {
    return index.cellAt.get(`${setting},${algorithm},${criterion}`) ?? null;
  }

  /** The criterion that an address names, else the first. */
  function readCriterion(query) {
    return index.criterionAt.get(query.get("criterion")) ?? 0;
  }

  const cellLink = (setting, algorithm, criterion, ...text) =>
    h(
      "a",
      {
        href: address("cell", {
          algorithm: index.algorithms[algorithm].name,
          dataset: index.settings[setting].label,
          criterion: index.criteria[criterion].name,
        }),
      },
      text,
    );
  const algorithmLink = (number) =>
    h("a", { href: address("algorithm", { name: index.algorithms[number].name }) }, index.algorithms[number].name);
  const datasetLink = (number) =>
    h("a", { href: address("dataset", { name: index.settings[number].label }) }, index.settings[number].label);

  /** One of a few, as a row of buttons (radio inputs). Options: [[value, text, explanation]]. */
  function choice(legendText, name, options, value, change) {
    return h(
      "fieldset",
      { class: "choice" },
      h("legend", {}, legendText),
      h(
        "div",
        { class: "segments" },
        options.map(([key, text, explanation]) =>
          h(
            "label",
            { title: explanation },
            h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => change(key) }),
            h("span", {}, text),
          ),
        ),
      ),
    );
  }

  /** One of many, as a drop-down list. */
  function select(labelText, options, value, change) {
    return h(
      "label",
      { class: "field" },
      h("span", {}, labelText),
      h(
        "select",
        { onchange: (event) => change(event.target.value) },
        options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
      ),
    );
  }

  /** Some of many, as check boxes behind a button. `chosen` null means all. */
  function several(labelText, options, chosen, change) {
    const boxes = options.map((text) =>
      h("input", { type: "checkbox", value: text, checked: chosen === null || chosen.includes(text) }),
    );
    const told = () => {
      const on = boxes.filter((box) => box.checked).length;
      return on === boxes.length ? `all ${on}` : `${on} of ${boxes.length}`;
    };
    const shown = h("span", { class: "value" }, told());
    const report = () => {
      shown.textContent = told();
      change(boxes.every((box) => box.checked) ? null : boxes.filter((box) => box.checked).map((box) => box.value));
    };
    for (const box of boxes) box.addEventListener("change", report);
    const all = (state) => () => {
      for (const box of boxes) box.checked = state;
      report();
    };
    return h(
      "details",
      { class: "several" },
      h("summary", {}, `${labelText}: `, shown),
      h(
        "fieldset",
        {},
        h("legend", { class: "unseen" }, labelText),
        h(
          "p",
          {},
          h("button", { type: "button", class: "plain", onclick: all(true) }, "all"),
          " ",
          h("button", { type: "button", class: "plain", onclick: all(false) }, "none"),
        ),
        options.map((text, number) => h("label", {}, boxes[number], " ", text)),
      ),
    );
  }

  /** A way to switch the criterion on pages that have one. */
  function criterionChoice(number, change) {
    return choice(
      "Chosen by",
      "criterion",
      index.criteria.map((entry) => [entry.name, entry.title, entry.meaning]),
      index.criteria[number].name,
      (name) => change(index.criterionAt.get(name)),
    );
  }

  /*
   * A table that sorts by any column. `columns`: { title, text (shown in the head), value (row → number or text or null),
   * cell (row → nodes), kind ("number"), down (first sorted downwards), header (row header), unsortable }. Rows without
   * a value come last in either direction.
   */
  function table({ caption, columns, rows, sort = null, changed = null, rowClass = null, kind = "" }) {
    let state = sort;
    const body = h("tbody");
    const heads = columns.map((column, number) => {
      const inner = column.unsortable
        ? h("span", { class: "unsorted" }, column.title)
        : h(
            "button",
            { type: "button", class: "sort", onclick: () => sortBy(number) },
            h("span", {}, column.title, h("span", { class: "arrow", "aria-hidden": "true" })),
            column.below ? h("small", {}, column.below) : null,
          );
      return h("th", { scope: "col", class: column.kind }, inner);
    });
    const made = new Map(
      rows.map((row) => [
        row,
        h(
          "tr",
          { class: rowClass ? rowClass(row) : null },
          columns.map((column) =>
            h(
              column.header ? "th" : "td",
              {
                scope: column.header ? "row" : null,
                class: [column.kind, column.cellClass?.(row)].filter(Boolean).join(" ") || null,
              },
              column.cell(row),
            ),
          ),
        ),
      ]),
    );

    function sortBy(number) {
      const again = state && state.column === number;
      state = { column: number, down: again ? !state.down : Boolean(columns[number].down) };
      order();
      changed?.(state);
    }

    function order() {
      let ordered = rows;
      if (state) {
        const { value } = columns[state.column];
        const sign = state.down ? -1 : 1;
        const known = rows.filter((row) => value(row) !== null);
        const unknown = rows.filter((row) => value(row) === null);
        known.sort((a, b) => sign * compare(value(a), value(b)));
        ordered = [...known, ...unknown];
      }
      heads.forEach((head, number) => {
        const on = state && state.column === number;
        head.toggleAttribute("aria-sort", false);
        if (on) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        const arrow = head.querySelector(".arrow");
        if (arrow) arrow.textContent = on ? (state.down ? " ↓" : " ↑") : "";
      });
      body.replaceChildren(...ordered.map((row) => made.get(row)));
      node.ordered = ordered;
    }

    const node = h(
      "div",
      { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": caption },
      h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads)), body),
    );
    order();
    if (kind === "wide") watchWidth(node);
    return node;
  }

  const widths =
    typeof ResizeObserver === "function"
      ? new ResizeObserver((entries) => entries.forEach(({ target }) => fit(target)))
      : null;

  /** A table that fits needs no frame that scrolls: then its head stays in sight while the page scrolls. */
  function fit(node) {
    node.classList.toggle("fits", node.firstElementChild.offsetWidth <= node.clientWidth);
  }

  function watchWidth(node) {
    widths?.observe(node);
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true, sensitivity: "base" });
  }

  /** A list of (what, value). */
  function facts(pairs) {
    return h(
      "dl",
      { class: "facts" },
      pairs.map(([what, value]) => h("div", {}, h("dt", {}, what), h("dd", {}, value))),
    );
  }

  /** Text to take away, with a button that copies it. */
  function code(text, what) {
    const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "Copy");
    button.addEventListener("click", async () => {
      if (await copyText(text, what)) {
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      }
    });
    return h(
      "div",
      { class: "code" },
      h("pre", { tabindex: 0, role: "region", "aria-label": what }, h("code", {}, text)),
      button,
    );
  }

  /** Buttons that copy what `make()` returns (see copying.js) in each format. */
  function copyButtons(make) {
    return h(
      "div",
      { class: "copies", role: "group", "aria-label": "Copy this table" },
      h("span", {}, "Copy as"),
      FORMATS.map(([name, render]) => {
        const button = h("button", { type: "button", class: "plain" }, name);
        button.addEventListener("click", async () => {
          if (await copyText(render(make()), `Table as ${name}`)) {
            button.textContent = "Copied";
            setTimeout(() => (button.textContent = name), 1500);
          }
        });
        return button;
      }),
    );
  }

  /** Show a page's heading; the pages return lists of nodes that start with it. */
  function heading(title, ...below) {
    return h("div", { class: "heading" }, h("h1", {}, title), below);
  }

  /** A node that is filled when a chunk has come. */
  function later(chunk, fillIn) {
    const place = h("div", { class: "later", "aria-busy": "true" }, h("p", { class: "quiet" }, "Loading …"));
    window.plench.load(chunk).then(
      (content) => {
        place.replaceChildren(...fillIn(content).flat(Infinity).filter(Boolean));
        place.setAttribute("aria-busy", "false");
      },
      (error) => {
        place.replaceChildren(h("p", { class: "wrong" }, error.message));
        place.setAttribute("aria-busy", "false");
      },
    );
    return place;
  }

  Object.assign(window.plench, {
    useIndex,
    findCell,
    readCriterion,
    cellLink,
    algorithmLink,
    datasetLink,
    choice,
    select,
    several,
    criterionChoice,
    table,
    compare,
    facts,
    code,
    copyButtons,
    heading,
    later,
  });
})();
