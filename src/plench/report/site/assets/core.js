// What every page uses: data chunks, elements, addresses, numbers; and the start, which shows the page of the address.
// Text from records becomes text nodes, never markup.
(function () {
  "use strict";

  const chunks = new Map();
  const waiting = new Map();

  /** Called by each data script with its name and value. */
  const receive = (name, value) => chunks.set(name, value);

  /** Load a chunk as a script, once; a page opened from disk cannot fetch files. */
  function load(name) {
    if (chunks.has(name)) return Promise.resolve(chunks.get(name));
    if (waiting.has(name)) return waiting.get(name);
    const folder = document.querySelector('meta[name="plench-data"]').content;
    const promise = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${folder}/${name}.js`;
      script.onload = () => {
        script.remove();
        if (chunks.has(name)) resolve(chunks.get(name));
        else reject(new Error(`The file of ${name} does not contain its data.`));
      };
      script.onerror = () => {
        script.remove();
        waiting.delete(name);
        reject(new Error("This part of the data is not there any more: the page may have been replaced. Reload it."));
      };
      document.head.append(script);
    });
    waiting.set(name, promise);
    return promise;
  }

  const PROPERTIES = new Set(["checked", "disabled", "selected", "open", "value"]);

  const isThere = (child) => child !== null && child !== undefined && child !== false;

  function fill(node, classes, [first, ...rest]) {
    const hasProps = first?.constructor === Object;
    if (classes.length) node.setAttribute("class", classes.join(" "));
    for (const [key, value] of Object.entries(hasProps ? first : {})) {
      if (!isThere(value)) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (PROPERTIES.has(key)) node[key] = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...(hasProps ? rest : [first, ...rest]).flat(Infinity).filter(isThere));
    return node;
  }

  /** Make an element: h("p.quiet", { title }, children …); properties are optional, strings become text. */
  function h(name, ...content) {
    const [tag, ...classes] = name.split(".");
    return fill(document.createElement(tag), classes, content);
  }

  /** Make an element of a drawing, in the same way. */
  function s(name, ...content) {
    const [tag, ...classes] = name.split(".");
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, content);
  }

  // Addresses

  /** The address of a page with its view: what is null, empty or an empty list is left out. */
  function address(page, view) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(view || {})) {
      for (const entry of [value].flat()) if (isThere(entry) && entry !== "") query.append(key, entry);
    }
    const text = query.toString();
    return `#/${page}${text ? `?${text}` : ""}`;
  }

  /** Change the address without a new entry in the history, for a control that changes the view. */
  const keepAddress = (page, view) => history.replaceState(null, "", address(page, view));

  /** Announce to screen readers what has happened. */
  function say(text) {
    const place = document.getElementById("said");
    place.textContent = "";
    setTimeout(() => (place.textContent = text), 30);
  }

  // Numbers. tests/report/test_site_browser.py compares them with Python's.

  const MINUS = "−";

  /** Decimals as Python writes them: a tie goes to the even digit (53.125 is 53.12), no minus before a zero. */
  function fixed(value, digits) {
    let text = value.toFixed(digits);
    if (Number.isInteger(value * 2 ** (digits + 1))) {
      const scaled = Math.abs(value) * 10 ** digits;
      const whole = Math.floor(scaled);
      if (scaled - whole === 0.5) {
        text = ((Math.sign(value) * (whole + (whole % 2))) / 10 ** digits).toFixed(digits);
      }
    }
    return /^-0\.?0*$/.test(text) ? text.slice(1) : text.replace("-", MINUS);
  }

  /** A share as percent without the sign. */
  function percent(value, digits = 2) {
    return isThere(value) ? fixed(100 * value, digits) : "none";
  }

  /** A difference of shares in points, with its sign. */
  function points(value, digits = 2) {
    const text = percent(value, digits);
    return Number(text) > 0 ? `+${text}` : text;
  }

  /** A number of any size, short. */
  function short(value) {
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return count(value);
    const text =
      Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5
        ? Number(value.toPrecision(4)).toString()
        : value.toExponential(2).replace(/\.?0+e/, "e");
    return text.replace("e+", "e").replace("-", MINUS);
  }

  /** A whole number with thin groups of three. */
  function count(value) {
    return String(value)
      .replace("-", MINUS)
      .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  }

  const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

  function duration(seconds) {
    if (seconds < 90) return `${fixed(seconds, 0)} s`;
    if (seconds < 5400) return `${fixed(seconds / 60, 0)} min`;
    if (seconds < 172800) return `${fixed(seconds / 3600, 1)} h`;
    return `${fixed(seconds / 86400, 1)} days`;
  }

  // The start

  const MENU = {
    leaderboard: "Leaderboard",
    compare: "Compare",
    criteria: "Criteria",
    datasets: "Datasets",
    algorithms: "Algorithms",
    provenance: "Provenance",
  };
  const PARENTS = { cell: "leaderboard", dataset: "datasets", algorithm: "algorithms" };
  const EARLIER = { made: "provenance" };
  const REFRESH_SECONDS = 15;

  function absent(text) {
    return [h("h1", "Not here"), h("p", text), h("p", h("a", { href: "#/leaderboard" }, "To the leaderboard"))];
  }

  function show(first) {
    const [named, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
    const page = EARLIER[named] ?? (named || "leaderboard");
    const view = new URLSearchParams(query || "");
    const known = Object.hasOwn(plench.pages, page) ? plench.pages[page] : null;
    const nodes = known ? known.show(view) : absent("This site has no such page.");
    document.title = `${known ? known.title(view) : "Not here"} · plench`;
    const main = document.getElementById("main");
    main.replaceChildren(...nodes.flat(Infinity).filter(Boolean));
    for (const link of document.querySelectorAll("#pages a")) {
      const current = link.hash === `#/${PARENTS[page] ?? page}`;
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!first) {
      window.scrollTo(0, 0);
      main.focus({ preventScroll: true });
    }
  }

  /** Where the page is served, check for newer data and show them; the address keeps the view. */
  function watch() {
    if (!/^https?:$/.test(location.protocol)) return;
    const own = document.querySelector('meta[name="plench-data"]').content.split("/").pop();
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch("stamp.txt", { cache: "no-store" });
        if (!answer.ok || (await answer.text()).trim() === own) return;
        // Servers give dates in whole seconds, so a reload alone may show the cached page, whose data are gone.
        await fetch(location.pathname, { cache: "reload" });
        location.reload();
      } catch {
        // The server may be away for a while.
      }
    }, 1000 * REFRESH_SECONDS);
  }

  document.addEventListener("DOMContentLoaded", () => {
    // The address is the view, so the link that skips the menu must not change it.
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    });
    const entries = Object.entries(MENU).map(([page, text]) => h("li", h("a", { href: `#/${page}` }, text)));
    document.getElementById("pages").replaceChildren(...entries);
    load("index").then(
      (index) => {
        plench.useIndex(index);
        window.addEventListener("hashchange", () => show(false));
        show(true);
        if (!index.progress.complete) watch();
      },
      (error) => {
        document.getElementById("main").replaceChildren(h("p.wrong", error.message));
        watch();
      },
    );
  });

  const numbers = { fixed, percent, points, short, count, plural, duration };
  const plench = { receive, load, h, s, address, keepAddress, say, absent, ...numbers, pages: {} };
  window.plench = plench;
})();
