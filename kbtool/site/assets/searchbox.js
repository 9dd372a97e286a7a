/* The search field of every page, and what its worker (search.js) finds. It is here, not the theme's,
 * so that a site searches the same whichever generator built it. */
"use strict";
(() => {
  const SETUP = 0, READY = 1, QUERY = 2; // else an answer
  const AT_ONCE = 20; // results; more when one scrolls to them
  const SHOWN = 2; // sections of a page; the others are folded
  const form = document.querySelector(".kb-search");
  const toggle = document.getElementById("__search"); // the theme's: its button on a phone sets it
  if (!form || !toggle) return;
  const { query: field } = form;
  const output = form.querySelector(".kb-search__output");
  const meta = form.querySelector(".kb-search__meta");
  const list = form.querySelector(".kb-search__list");
  const completed = form.querySelector(".kb-search__completed");
  const base = new URL(form.dataset.base.replace(/\/?$/, "/"), location);

  const made = (name, kind, html = "") => {
    const element = document.createElement(name);
    element.className = `kb-search__${kind}`;
    element.innerHTML = html; // the worker has encoded it
    return element;
  };

  /* The words of a query as they stand on a page, for its address. */
  const address = ({ location: place, terms }) => {
    const to = new URL(place, base);
    const words = Object.keys(terms).filter((word) => terms[word]);
    if (words.length) to.searchParams.set("h", words.join(" "));
    return to.href;
  };

  const link = (item, kind) => {
    const to = made("a", `link kb-search__${kind}`, `<span class="kb-search__title">${item.title}</span>`);
    to.href = address(item);
    if (item.text) to.append(made("span", "text", item.text));
    const absent = Object.keys(item.terms).filter((word) => !item.terms[word]);
    if (kind === "page" && absent.length) {
      const missing = made("span", "missing");
      missing.textContent = `Missing: ${absent.join(", ")}`;
      to.append(missing);
    }
    if (item.tags) to.append(made("span", "tags", item.tags.map((tag) => `<span class="md-tag">${tag}</span>`).join(" ")));
    return to;
  };

  const result = (group) => {
    const page = group.find((item) => !item.location.includes("#")) || group[0];
    const sections = group.filter((item) => item !== page);
    // Where a section is what was looked for, the page only says whose it is.
    const title = page === group[0] ? page : { ...page, text: "", tags: null };
    const entry = made("li", "item");
    entry.append(link({ ...title, terms: group[0].terms }, "page"));
    entry.append(...sections.slice(0, SHOWN).map((item) => link(item, "section")));
    const others = sections.slice(SHOWN);
    if (others.length) {
      const more = made("details", "more", `<summary>${others.length} more on this page</summary>`);
      more.append(...others.map((item) => link(item, "section")));
      entry.append(more);
    }
    return entry;
  };

  let groups = [];
  const showMore = () => {
    const from = list.children.length;
    list.append(...groups.slice(from, from + AT_ONCE).map(result));
  };
  const show = (found) => {
    groups = found;
    list.replaceChildren();
    output.scrollTop = 0;
    const pages = `${groups.length} ${groups.length === 1 ? "page" : "pages"}`;
    meta.textContent = groups.length ? pages : field.value.trim() ? "No page matches" : "Type to start searching";
    showMore();
  };
  output.addEventListener("scroll", () => {
    if (output.scrollTop + 2 * output.clientHeight > output.scrollHeight) showMore();
  }, { passive: true });

  /* The rest of the word that is being typed, behind it; the right arrow takes it. */
  const complete = (query, rest) => {
    const fits = field.scrollWidth <= field.clientWidth;
    completed.textContent = fits && query === field.value ? rest : "";
    completed.dataset.typed = query;
  };
  const take = () => {
    if (!completed.textContent || field.selectionStart < field.value.length) return false;
    field.value += completed.textContent;
    field.dispatchEvent(new Event("input"));
    return true;
  };

  /* A page opened from a folder may read no file, but may load a script. */
  const index = () =>
    location.protocol !== "file:"
      ? fetch(`${form.dataset.index}.json`).then((got) => got.json())
      : new Promise((done, failed) => {
          const script = document.createElement("script");
          script.src = `${form.dataset.index}.js`;
          script.onload = () => done(window.__index);
          script.onerror = failed;
          document.head.append(script);
        });

  let worker = null, idle = false, asked = "";
  const ask = () => {
    if (!idle || asked === field.value) return;
    idle = false;
    asked = field.value;
    worker.postMessage({ type: QUERY, data: asked });
  };
  const start = () => {
    if (worker) return;
    worker = new Worker(form.dataset.worker);
    worker.onmessage = ({ data }) => {
      if (data.type !== READY) {
        show(data.data.items);
        complete(asked, data.data.rest);
      }
      idle = true;
      ask(); // what was typed meanwhile
    };
    index().then(
      (got) => worker.postMessage({ type: SETUP, data: { docs: got.docs || got.items } }),
      () => { meta.textContent = "The index of the search could not be loaded"; },
    );
  };

  const isOpen = () => toggle.checked;
  const open = () => {
    if (!isOpen()) toggle.click(); // the theme hears of it, and keeps the page behind from scrolling
    start();
  };
  const close = () => {
    if (isOpen()) toggle.click();
    if (form.contains(document.activeElement)) document.activeElement.blur();
  };

  field.addEventListener("focus", open);
  field.addEventListener("input", () => {
    complete("", "");
    ask();
  });
  toggle.addEventListener("change", () => { if (isOpen()) field.focus(); });
  form.addEventListener("reset", close);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a")?.click();
  });
  // The link of the page that one is on leads to a place on it.
  list.addEventListener("click", ({ target }) => { if (target.closest("a")) setTimeout(close); });
  addEventListener("pointerdown", ({ target }) => {
    if (isOpen() && !form.contains(target) && !target.closest("[for=__search]")) close();
  });

  const isTyping = ({ target }) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  addEventListener("keydown", (event) => {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!isOpen()) {
      if (!["/", "f", "s"].includes(key) || isTyping(event)) return;
      open(); // on a phone the field is not there to be focused before
      field.focus();
      field.select();
    } else if (key === "Escape") {
      close();
      return;
    } else if (key === "ArrowDown" || key === "ArrowUp") {
      const stops = [field, ...list.querySelectorAll("a, summary")].filter((stop) => stop.checkVisibility());
      const at = stops.indexOf(document.activeElement) + (key === "ArrowDown" ? 1 : -1);
      stops[(at + stops.length) % stops.length].focus();
    } else if (key !== "ArrowRight" || document.activeElement !== field || !take()) return;
    event.preventDefault();
  });
  form.addEventListener("focusout", ({ relatedTarget }) => {
    if (isOpen() && relatedTarget && !form.contains(relatedTarget)) close();
  });
})();

/* The words of the search that led here, marked. */
(() => {
  const words = (new URLSearchParams(location.search).get("h") || "").split(" ").filter(Boolean);
  const article = document.querySelector("article");
  if (!words.length || !article) return;
  const exact = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/[<>=≤≥]+/g, "[<>=≤≥]+"));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${exact.join("|")})`, "giu");
  const texts = document.createNodeIterator(article, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode())
    if (!text.parentElement.closest("svg, script, style, select, button, .headerlink") && text.data.search(pattern) >= 0)
      found.push(text);
  for (const text of found) {
    const parts = document.createDocumentFragment();
    let done = 0;
    for (const { 0: word, index } of text.data.matchAll(pattern)) {
      const mark = document.createElement("mark");
      mark.textContent = word;
      parts.append(text.data.slice(done, index), mark);
      done = index + word.length;
    }
    parts.append(text.data.slice(done));
    text.replaceWith(parts);
  }
})();
