// Starts the page: which part the address names, the menu, light or dark, and looking for newer data.
(function () {
  "use strict";
  const p = window.plench;
  const { h } = p;

  const MENU = [
    ["leaderboard", "Leaderboard"],
    ["compare", "Compare"],
    ["criteria", "Criteria"],
    ["datasets", "Datasets"],
    ["algorithms", "Algorithms"],
    ["made", "How it was made"],
  ];
  const PARENTS = { cell: "leaderboard", dataset: "datasets", algorithm: "algorithms" };
  const REFRESH_SECONDS = 15;

  p.absent = (text) => [
    p.heading("Not here"),
    h("p", {}, text),
    h("p", {}, h("a", { href: "#/leaderboard" }, "To the leaderboard")),
  ];

  function show(first) {
    const { page, query } = p.readAddress();
    const known = Object.hasOwn(p.pages, page) ? p.pages[page] : null;
    const nodes = known ? known.show(query) : p.absent("This page has no such part.");
    document.title = `${known ? known.title(query) : "Not here"} · plench`;
    const main = document.getElementById("main");
    main.replaceChildren(...nodes.flat(Infinity).filter(Boolean));
    for (const link of document.querySelectorAll("#pages a")) {
      const current = link.dataset.page === (PARENTS[page] ?? page);
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!first) {
      window.scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
  }

  function menu() {
    document
      .getElementById("pages")
      .replaceChildren(
        ...MENU.map(([page, text]) => h("li", {}, h("a", { href: `#/${page}`, "data-page": page }, text))),
      );
  }

  function themeButton() {
    const button = document.getElementById("theme");
    const root = document.documentElement;
    const dark = () =>
      root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const label = () => (button.textContent = dark() ? "Light" : "Dark");
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try {
        localStorage.setItem("plench-theme", root.dataset.theme);
      } catch {
        // Storage may be forbidden; the choice then holds for this page only.
      }
      label();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
    label();
  }

  /** Where the page is served, look for newer data and show them; the address keeps the view. */
  function watch() {
    if (!/^https?:$/.test(location.protocol)) return;
    const own = document.querySelector('meta[name="plench-data"]').content.split("/").pop();
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch("stamp.txt", { cache: "no-store" });
        if (!answer.ok || (await answer.text()).trim() === own) return;
        // A server tells dates in whole seconds, so a reload alone may show the kept page, whose data are gone.
        await fetch(location.pathname, { cache: "reload" });
        location.reload();
      } catch {
        // The server may be away for a while.
      }
    }, 1000 * REFRESH_SECONDS);
  }

  // The address is the view, so the link that skips the menu must not change it.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  menu();
  themeButton();
  p.load("index").then(
    (index) => {
      p.useIndex(index);
      window.addEventListener("hashchange", () => show(false));
      show(true);
      if (!index.progress.complete) watch();
    },
    (error) => {
      document.getElementById("main").replaceChildren(h("p", { class: "wrong" }, error.message));
      watch();
    },
  );
})();
