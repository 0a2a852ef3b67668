// A table as Markdown, LaTeX or CSV. Escapes are those of plench/report/tables.py, with which a test compares them.
(function () {
  "use strict";
  const { say } = window.plench;

  const LATEX = new Map([
    ["\\", "\\textbackslash{}"],
    ["{", "\\{"],
    ["}", "\\}"],
    ["$", "\\$"],
    ["&", "\\&"],
    ["#", "\\#"],
    ["_", "\\_"],
    ["%", "\\%"],
    ["~", "\\textasciitilde{}"],
    ["^", "\\textasciicircum{}"],
    ["<", "\\textless{}"],
    [">", "\\textgreater{}"],
    ["|", "\\textbar{}"],
    ["±", "$\\pm$"],
    ["×", "$\\times$"],
    ["−", "$-$"],
    ["…", "\\dots{}"],
    ["–", "--"],
    ["√", "$\\sqrt{}$"],
  ]);

  function escapeLatex(text) {
    return Array.from(text, (character) => LATEX.get(character) ?? character).join("");
  }

  function escapeMarkdown(text) {
    const safe = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    return safe.replace(/([\\`*_[\]|])/g, "\\$1");
  }

  /** A field of a CSV file; a name that a spreadsheet would run as a formula gets an apostrophe in front. */
  function escapeCsv(text, guard = true) {
    const safe = guard && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  /*
   * A table to copy: { caption, header: [text], rows: [[{ text, best, tied, figures }]] }, the first column names.
   * `figures` are the plain numbers of a cell, for CSV.
   */
  function asMarkdown(table) {
    const line = (cells) => `| ${cells.join(" | ")} |`;
    const show = (cell) => {
      const text = escapeMarkdown(cell.text);
      return cell.best ? `**${text}**` : cell.tied ? `*${text}*` : text;
    };
    const rule = table.header.map((_, number) => (number ? "---:" : "---"));
    return [
      line(table.header.map(escapeMarkdown)),
      line(rule),
      ...table.rows.map((row) => line(row.map(show))),
      "",
      escapeMarkdown(table.caption),
      "",
    ].join("\n");
  }

  function asLatex(table) {
    const show = (cell) => {
      const text = escapeLatex(cell.text);
      return cell.best ? `\\textbf{${text}}` : cell.tied ? `\\underline{${text}}` : text;
    };
    return [
      "% needs \\usepackage{booktabs}",
      "\\begin{table}",
      "\\centering",
      `\\caption{${escapeLatex(table.caption)}}`,
      `\\begin{tabular}{l${"r".repeat(table.header.length - 1)}}`,
      "\\toprule",
      `${table.header.map(escapeLatex).join(" & ")} \\\\`,
      "\\midrule",
      ...table.rows.map((row) => `${row.map(show).join(" & ")} \\\\`),
      "\\bottomrule",
      "\\end{tabular}",
      "\\end{table}",
      "",
    ].join("\n");
  }

  function asCsv(table) {
    const parts = table.figureNames;
    const header = table.header.flatMap((name, column) =>
      table.rows.some((row) => row[column].figures) ? parts.map((part) => (part ? `${name} ${part}` : name)) : [name],
    );
    const rows = table.rows.map((row) =>
      row.flatMap((cell, column) => {
        if (cell.figures)
          return cell.figures.map((figure) => (figure === null ? "" : escapeCsv(String(figure), false)));
        const wide = table.rows.some((other) => other[column].figures);
        return wide ? parts.map(() => "") : [escapeCsv(cell.text)];
      }),
    );
    return [header.map((name) => escapeCsv(name)), ...rows].map((row) => row.join(",")).join("\n") + "\n";
  }

  const FORMATS = [
    ["Markdown", asMarkdown],
    ["LaTeX", asLatex],
    ["CSV", asCsv],
  ];

  /** Copy text; an older way where the page's host does not allow the newer one. */
  async function copyText(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "unseen";
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      if (!copied) {
        say("Copying is not allowed here");
        return false;
      }
    }
    say(`${what} copied`);
    return true;
  }

  Object.assign(window.plench, {
    escapeLatex,
    escapeMarkdown,
    escapeCsv,
    asMarkdown,
    asLatex,
    asCsv,
    FORMATS,
    copyText,
  });
})();
