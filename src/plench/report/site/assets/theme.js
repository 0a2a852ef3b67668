// Light or dark, before the first paint: what the reader chose last, else what the system prefers.
(function () {
  "use strict";
  let chosen = null;
  try {
    chosen = localStorage.getItem("plench-theme");
  } catch {
    // Storage may be forbidden; then the system's preference holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
