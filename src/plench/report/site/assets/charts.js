// Drawings: plain SVG made here. There are four kinds of chart, each needs a description in words, follows the page's
// colours in light, dark and print, and must not need eval or a network; a library would be larger than the page.
(function () {
  "use strict";
  const { h, s, short } = window.plench;

  const observer = new ResizeObserver((entries) => {
    for (const entry of entries) entry.target.redraw(entry.contentRect.width);
  });

  /*
   * A figure: `draw(width)` returns an SVG, again whenever the width changes, so that its letters keep their size.
   * `title` heads it, `words` say what it shows (also to a screen reader), `extra` follows below.
   */
  function figure({ title, words, draw, extra = [] }) {
    const canvas = h("div.canvas");
    let drawn = 0;
    canvas.redraw = (width) => {
      if (width < 40 || Math.abs(width - drawn) < 2) return;
      drawn = width;
      const svg = draw(Math.floor(width));
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${title}. ${words}`);
      canvas.replaceChildren(svg);
    };
    observer.observe(canvas);
    requestAnimationFrame(() => canvas.redraw(canvas.clientWidth || 600));
    return h("figure.figure", h("figcaption", h("strong", title), " ", h("span", words)), canvas, extra);
  }

  /** About n round numbers that cover a range. */
  function ticks(low, high, n = 5) {
    if (!(high > low)) return [low];
    const raw = (high - low) / n;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999) ?? 10 * power;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
      found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  /** Powers of ten in a range, thinned; round numbers where the range is short. */
  function logTicks(low, high) {
    const first = Math.ceil(Math.log10(low) - 1e-9);
    const last = Math.floor(Math.log10(high) + 1e-9);
    if (last - first < 1) return ticks(low, high, 3);
    const every = Math.ceil((last - first) / 5);
    const found = [];
    for (let k = first; k <= last; k += every) found.push(10 ** k);
    return found;
  }

  /*
   * The range that shows most values well: one far outlier must not squeeze the others. Values beyond three
   * quartile distances are left outside, and drawn at the edge.
   */
  function robustRange(values, pad = 0.06) {
    const sorted = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
    if (!sorted.length) return [0, 1];
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))];
    const spread = at(0.75) - at(0.25);
    let low = sorted[0];
    let high = sorted[sorted.length - 1];
    if (spread > 0 && sorted.length >= 5) {
      low = sorted.find((value) => value >= at(0.25) - 3 * spread);
      high = sorted.findLast((value) => value <= at(0.75) + 3 * spread);
    }
    const room = (high - low || Math.abs(high) || 1) * pad;
    return [low - room, high + room];
  }

  function scale(low, high, from, to, log = false) {
    const f = log ? Math.log10 : (value) => value;
    const a = f(low);
    const b = f(high);
    return (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
  }

  /*
   * Axes with thin lines behind the data. `x` and `y`: { range, label, log, format, ticks, zero (a broken line there) }.
   * Returns the drawing, its box, the layer of the data, the scales, and what draws in units of the data: `line` and
   * `mark`.
   */
  function axes({ width, height = 260, x, y, left = 52, right = 14 }) {
    const box = { left, right: width - right, top: 12, bottom: height - 42 };
    const X = scale(...x.range, box.left, box.right, x.log);
    const Y = scale(...y.range, box.bottom, box.top, y.log);
    const svg = s("svg.chart", { viewBox: `0 0 ${width} ${height}`, width, height });
    const xTicks = x.ticks ?? (x.log ? logTicks(...x.range) : ticks(...x.range, Math.max(2, Math.floor(width / 110))));
    const line = (kind, x1, x2, y1, y2) => svg.append(s(`line.${kind}`, { x1, x2, y1, y2 }));
    const text = (kind, props, content) => svg.append(s(`text.${kind}`, props, content));
    for (const tick of y.ticks ?? ticks(...y.range, 5)) {
      line("grid", box.left, box.right, Y(tick), Y(tick));
      text("tick", { x: box.left - 6, y: Y(tick) + 4, "text-anchor": "end" }, (y.format ?? short)(tick));
    }
    for (const tick of xTicks) {
      line("grid", X(tick), X(tick), box.bottom, box.bottom + 4);
      text("tick", { x: X(tick), y: box.bottom + 17, "text-anchor": "middle" }, (x.format ?? short)(tick));
    }
    line("axis", box.left, box.right, box.bottom, box.bottom);
    const middle = (box.top + box.bottom) / 2;
    text("label", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label);
    text("label", { transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle" }, y.label);
    if (x.zero) line("zero", X(0), X(0), box.top - 4, box.bottom);
    if (y.zero) line("zero", box.left, box.right, Y(0), Y(0));
    const layer = s("g");
    svg.append(layer);
    return {
      svg,
      box,
      layer,
      X,
      Y,
      line: (kind, points, title) =>
        layer.append(s(`path.line.${kind}`, { d: path(points, X, Y) }, title ? s("title", title) : null)),
      mark: (px, py, options) => layer.append(mark({ x: X(px), y: Y(py), box, ...options })),
    };
  }

  function path(points, X, Y) {
    let line = "";
    let pen = "M";
    for (const [x, y] of points) {
      if (y === null || !Number.isFinite(y)) {
        pen = "M";
        continue;
      }
      line += `${pen}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
      pen = "L";
    }
    return line;
  }

  const SHAPES = {
    circle: (r) => `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`,
    square: (r) => `M${-r} ${-r}H${r}V${r}H${-r}Z`,
    diamond: (r) => `M0 ${-1.3 * r}L${1.3 * r} 0L0 ${1.3 * r}L${-1.3 * r} 0Z`,
    triangle: (r) => `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`,
    down: (r) => `M0 ${1.2 * r}L${1.2 * r} ${-r}H${-1.2 * r}Z`,
    left: (r) => `M${-1.2 * r} 0L${r} ${-1.2 * r}V${1.2 * r}Z`,
    right: (r) => `M${1.2 * r} 0L${-r} ${-1.2 * r}V${1.2 * r}Z`,
  };

  /** A mark at a place; outside the frame it becomes an arrow at the edge that points there. */
  function mark({ x, y, box, shape = "circle", size = 3.5, kind = "", title }) {
    let at = [x, y];
    let form = shape;
    if (box) {
      if (x < box.left - 1) form = "left";
      else if (x > box.right + 1) form = "right";
      else if (y > box.bottom + 1) form = "down";
      else if (y < box.top - 1) form = "triangle";
      at = [Math.min(box.right, Math.max(box.left, x)), Math.min(box.bottom, Math.max(box.top, y))];
    }
    const transform = `translate(${at[0].toFixed(1)} ${at[1].toFixed(1)})`;
    return s("path", { class: `mark ${kind}`, d: SHAPES[form](size), transform }, title ? s("title", title) : null);
  }

  /** The keys of a chart as a list with drawn samples. */
  function legend(entries) {
    const sample = ({ kind, shape, line }) =>
      s(
        "svg.chart",
        { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" },
        line ? s(`path.line.${kind}`, { d: "M1 6H25" }) : null,
        shape ? mark({ x: 13, y: 6, shape, kind }) : null,
      );
    return h(
      "ul.legend",
      entries.map((entry) => h("li", sample(entry), entry.text)),
    );
  }

  /** What a chart could not show inside its frame, in words. */
  function outsideNote(texts) {
    return texts.length ? h("p.quiet", `Outside the frame, drawn as arrows at its edge: ${texts.join("; ")}.`) : null;
  }

  Object.assign(window.plench, { figure, robustRange, scale, axes, mark, legend, outsideNote });
})();
