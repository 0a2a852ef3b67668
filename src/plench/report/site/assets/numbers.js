// The little arithmetic that depends on what is shown; all statistics proper are in the data.
// tests/report/test_site_browser.py compares it with the Python code of tables and statistics.
(function () {
  "use strict";

  const ROUNDING = 1e-12;

  function mean(values) {
    return values.reduce((sum, value) => sum + value, 0) / values.length;
  }

  /** Ranks, 1 for the highest; equal ones (to 12 digits) share the average of their ranks. */
  function rankValues(values) {
    const rounded = values.map((value) => Math.round(value * 1e12));
    return rounded.map((value) => {
      const above = rounded.filter((other) => other > value).length;
      const equal = rounded.filter((other) => other === value).length;
      return above + (equal + 1) / 2;
    });
  }

  /** Whether a mean lies within one standard error (the best cell's) of the best mean. */
  function isWithin(cell, best) {
    return best.se !== null && cell.mean >= best.mean - best.se - ROUNDING;
  }

  function isBest(cell, best) {
    return Math.abs(cell.mean - best.mean) <= 1e-9 * Math.max(Math.abs(cell.mean), Math.abs(best.mean));
  }

  /** Decimals as Python writes them: a tie goes to the even digit (53.125 is 53.12), no minus before a zero. */
  function fixed(value, digits) {
    const doubled = value * 2 ** (digits + 1);
    let text = value.toFixed(digits);
    if (Number.isInteger(doubled) && Math.abs(doubled % 2) === 1) {
      const scaled = Math.abs(value) * 10 ** digits;
      const whole = Math.floor(scaled);
      if (scaled - whole === 0.5) {
        const even = whole % 2 === 0 ? whole : whole + 1;
        text = ((Math.sign(value) * even) / 10 ** digits).toFixed(digits);
      }
    }
    return /^-0\.?0*$/.test(text) ? text.slice(1) : text;
  }

  /** A share as percent without the sign. */
  function percent(value, digits = 2) {
    return value === null || value === undefined ? "none" : fixed(100 * value, digits);
  }

  /** A difference of shares in points, with its sign. */
  function points(value, digits = 2) {
    if (value === null || value === undefined) return "none";
    const text = fixed(100 * value, digits);
    if (text.startsWith("-")) return `−${text.slice(1)}`;
    return Number(text) === 0 ? text : `+${text}`;
  }

  /** A number of any size, short. */
  function short(value) {
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return count(value);
    const text =
      Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5
        ? Number(value.toPrecision(4)).toString()
        : value.toExponential(2).replace(/\.?0+e/, "e");
    return text.replace("e+", "e").replace("-", "−");
  }

  /** A whole number with thin groups of three. */
  function count(value) {
    return value
      .toString()
      .replace("-", "−")
      .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  }

  function plural(n, noun) {
    return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
  }

  function duration(seconds) {
    if (seconds < 90) return `${fixed(seconds, 0)} s`;
    if (seconds < 5400) return `${fixed(seconds / 60, 0)} min`;
    if (seconds < 172800) return `${fixed(seconds / 3600, 1)} h`;
    return `${fixed(seconds / 86400, 1)} days`;
  }

  Object.assign(window.plench, {
    mean,
    rankValues,
    isWithin,
    isBest,
    fixed,
    percent,
    points,
    short,
    count,
    plural,
    duration,
  });
})();
