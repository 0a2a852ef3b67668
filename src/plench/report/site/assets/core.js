// What every part uses: data chunks, elements, addresses. Text from records becomes text nodes, never markup.
(function () {
  "use strict";

  const chunks = new Map();
  const waiting = new Map();

  /** Called by each data script with its name and value. */
  function receive(name, value) {
    chunks.set(name, value);
  }

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
        else reject(new Error(`The file of ${name} does not hold its data.`));
      };
      script.onerror = () => {
        script.remove();
        waiting.delete(name);
        reject(
          new Error("This part of the data is not there any more: the page may have been written anew. Load it again."),
        );
      };
      document.head.append(script);
    });
    waiting.set(name, promise);
    return promise;
  }

  const PROPERTIES = new Set(["checked", "disabled", "selected", "open", "value"]);

  function fill(node, props, children) {
    for (const [key, value] of Object.entries(props || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (PROPERTIES.has(key)) node[key] = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  /** Make an element; strings among the children become text. */
  function h(tag, props, ...children) {
    return fill(document.createElement(tag), props, children);
  }

  /** Make an element of a drawing. */
  function s(tag, props, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
  }

  /** The address of a page with its view: what is null, empty or an empty list is left out. */
  function address(page, view) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries(view || {})) {
      for (const entry of Array.isArray(value) ? value : [value]) {
        if (entry !== null && entry !== undefined && entry !== "") query.append(key, entry);
      }
    }
    const text = query.toString();
    return `#/${page}${text ? `?${text}` : ""}`;
  }

  /** The page and view that the address names. */
  function readAddress() {
    const [page, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
    return { page: page || "leaderboard", query: new URLSearchParams(query || "") };
  }

  /** Change the address without a new entry in the history, for a control that changes the view. */
  function keepAddress(page, view) {
    history.replaceState(null, "", address(page, view));
  }

  /** Tell a screen reader (and nobody else) what has happened. */
  function say(text) {
    const place = document.getElementById("said");
    place.textContent = "";
    setTimeout(() => (place.textContent = text), 30);
  }

  window.plench = { receive, load, h, s, address, readAddress, keepAddress, say, pages: {} };
})();
