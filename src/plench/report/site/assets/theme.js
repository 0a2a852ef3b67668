// Light or dark, before the first paint: what the reader chose last, else what the system prefers.
(function () {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  try {
    const chosen = localStorage.getItem("plench-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; then the system's preference holds.
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => (button.textContent = isDark() ? "Light" : "Dark");
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("plench-theme", root.dataset.theme);
      } catch {
        // Storage may be forbidden; the choice then holds for this page only.
      }
      label();
    });
    system.addEventListener("change", label);
    label();
  });
})();
