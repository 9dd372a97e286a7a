/* Tables that sort and filter, and the part of the address that keeps how they stand.
   Without this script a table is as it is. State: #sort=Took, #sort=-Took (downwards), #q=words;
   of the second table of a page sort2 and q2, and so on. */
(function () {
  "use strict";

  var COLLATOR = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  var SECONDS = { ns: 1e-9, us: 1e-6, "µs": 1e-6, "μs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600 };
  var BYTES = { byte: 1, bytes: 1, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
  var NUMBER = /^[~<>≤≥≈=×+\s]*(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s*(?:–|\.\.)\s*\d[\d.,]*)?\s*([a-zµμ]*)/i;
  var DATE = /^\d{4}-\d\d(-\d\d)?([ T]\d\d:\d\d(:\d\d)?)?( UTC|Z)?$/;
  var MANY = 20; // rows; a table of more has a box to filter it by
  var ORDERED = 6; // rows; a stacked table of fewer is read without sorting it
  var NOTHING = /^(|–|-|\?|unknown|undated|none|n\/a)$/i;

  /* What is in the address after #, if it is state and not an anchor. */
  function state() {
    var hash = location.hash.slice(1);
    return new URLSearchParams(hash.indexOf("=") < 0 ? "" : hash);
  }

  /* Put keys into the address; an empty value takes one out. No entry in the history. */
  function setState(changes) {
    var now = state();
    Object.keys(changes).forEach(function (key) {
      if (changes[key]) now.set(key, changes[key]);
      else now.delete(key);
    });
    var text = now.toString().replace(/%2F/g, "/").replace(/%3A/g, ":");
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }

  function textOf(cell) {
    return (cell ? cell.textContent : "").replace(/\u2212/g, "-").replace(/\s+/g, " ").trim();
  }

  /* A number for what is a figure, in one unit of time or size; null for anything else. */
  function figure(text) {
    var found = NUMBER.exec(text);
    if (!found) return null;
    var value = parseFloat(found[1].replace(/,/g, "")), unit = found[2];
    if (unit in SECONDS) {
      value *= SECONDS[unit];
      var rest = /^\d+ (h|min) (\d+) (min|s)\b/.exec(text);
      if (rest) value += rest[2] * SECONDS[rest[3]];
    } else if (unit in BYTES) value *= BYTES[unit];
    return value;
  }

  /* What each row's cell sorts by. A column is of figures where every cell that says anything is. */
  function values(rows, column) {
    var texts = rows.map(function (row) {
      var cell = row.cells[column];
      var marked = cell && (cell.dataset.sort !== undefined ? cell : cell.querySelector("[data-sort]"));
      return marked ? marked.dataset.sort.trim() : textOf(cell);
    });
    var said = texts.filter(function (text) { return !NOTHING.test(text); });
    var dates = said.every(function (text) { return DATE.test(text); });
    var figures = !dates && said.every(function (text) { return figure(text) !== null; });
    return texts.map(function (text) {
      if (NOTHING.test(text)) return null;
      return figures ? figure(text) : text;
    });
  }

  function compare(a, b) {
    return typeof a === "number" ? a - b : COLLATOR.compare(a, b);
  }

  /* The line of the total, which is bold throughout, stays last and is never filtered out. */
  function isSum(row) {
    return Array.from(row.cells).every(function (cell) {
      return textOf(cell) === textOf(cell.querySelector("strong"));
    });
  }

  function enhance(table, number, filtered) {
    var suffix = number > 1 ? number : "";
    var body = table.tBodies[0];
    var rows = Array.from(body.rows);
    var sums = rows.filter(isSum), original = rows.filter(function (row) { return !isSum(row); });
    var heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head) {
      if (!textOf(head)) return;
      var button = document.createElement("button");
      button.type = "button";
      button.className = "kb-sort";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var is = head.getAttribute("aria-sort"), name = textOf(head);
        sortBy(is === "ascending" ? "-" + name : is ? "" : name);
      });
    });

    function sortBy(wanted) {
      var changes = {};
      changes["sort" + suffix] = wanted;
      setState(changes);
      show();
    }

    function place(control) {
      var frame = table.closest(".md-typeset__scrollwrap") || table;
      frame.parentNode.insertBefore(control, frame);
    }

    var input, count, elsewhere;
    if (filtered) {
      var bar = document.createElement("div");
      bar.className = "kb-filter";
      var label = document.createElement("label");
      label.appendChild(document.createTextNode("Filter "));
      input = document.createElement("input");
      input.type = "search";
      label.appendChild(input);
      count = document.createElement("output");
      count.setAttribute("aria-live", "polite");
      elsewhere = el("button", { type: "button", class: "kb-button" }, "Search the whole site");
      elsewhere.addEventListener("click", function () { search(input.value); });
      bar.append(label, count, elsewhere);
      place(bar);
      input.addEventListener("input", function () {
        var changes = {};
        changes["q" + suffix] = input.value.trim();
        setState(changes);
        filter();
      });
    }

    /* The heads of a stacked table are not shown: there a choice sorts (pages.css). */
    var order;
    if (table.closest(".kb-stack") && original.length >= ORDERED) {
      order = el("select", {}, el("option", { value: "" }, "as listed"));
      heads.map(textOf).filter(Boolean).forEach(function (name) {
        order.append(
          el("option", { value: name }, name + ", ascending"),
          el("option", { value: "-" + name }, name + ", descending")
        );
      });
      place(el("label", { class: "kb-filter kb-order" }, "Sort by ", order));
      order.addEventListener("change", function () { sortBy(order.value); });
    }

    function filter() {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
      original.forEach(function (row) {
        // The title of a link has the id of its record.
        var titles = Array.from(row.querySelectorAll("a[title]"), function (link) { return link.title; });
        var text = [row.textContent].concat(titles).join(" ").toLowerCase();
        row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
        shown += !row.hidden;
      });
      count.textContent = shown + " of " + original.length;
      elsewhere.hidden = shown > 0;
    }

    function show() {
      var wanted = state().get("sort" + suffix) || "", down = wanted[0] === "-";
      var column = heads.findIndex(function (head) {
        return textOf(head) === (down ? wanted.slice(1) : wanted);
      });
      var sorted = original.slice();
      heads.forEach(function (head) { head.removeAttribute("aria-sort"); });
      if (column >= 0) {
        var keys = values(original, column), key = new Map();
        original.forEach(function (row, at) { key.set(row, keys[at]); });
        sorted.sort(function (a, b) {
          var x = key.get(a), y = key.get(b);
          if (x === null || y === null) return (x === null) - (y === null); // unknown comes last
          return down ? compare(y, x) : compare(x, y);
        });
        heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
      }
      if (order) order.value = column >= 0 ? wanted : "";
      sorted.concat(sums).forEach(function (row) { body.appendChild(row); });
      if (input && document.activeElement !== input) input.value = state().get("q" + suffix) || "";
      if (input) filter();
    }

    show();
    return show;
  }

  /* ---- what scripts of single pages are made of ---- */

  /* Data comes as scripts: a page opened from a disk may load those, and read nothing else. */
  function load(address) {
    return new Promise(function (resolve, reject) {
      var script = document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = function () { reject(new Error(address + " could not be loaded")); };
      document.head.appendChild(script);
    });
  }

  function el(tag, attributes) {
    var made = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (name) {
      made.setAttribute(name, attributes[name]);
    });
    Array.from(arguments).slice(2).forEach(function (part) {
      if (part !== null && part !== "") made.append(part);
    });
    return made;
  }

  /* Three digits, without an exponent. */
  function digits(value) {
    if (!value) return "0";
    var places = 2 - Math.floor(Math.log10(Math.abs(value)));
    var scale = Math.pow(10, places), shown = Math.round(value * scale) / scale;
    if (Math.abs(shown) >= Math.pow(10, 3 - places)) places -= 1; // it was rounded up to a power of ten
    var fixed = Math.min(Math.max(places, 0), 9);
    return shown.toLocaleString("en", { minimumFractionDigits: fixed, maximumFractionDigits: fixed });
  }

  /* Open the search with these words. */
  function search(words) {
    var field = document.querySelector(".kb-search__input"), toggle = document.getElementById("__search");
    if (!toggle.checked) toggle.click();
    field.value = words;
    field.focus();
    field.dispatchEvent(new Event("input"));
  }

  function copy(text, said) {
    function done() { said.textContent = "Copied."; }
    function old() { // where the page is not from a secure address
      var area = el("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      var ok = document.execCommand("copy");
      area.remove();
      if (ok) done();
      else said.textContent = "The browser does not allow copying.";
    }
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, old);
    else old();
  }

  window.kbTables = {
    state: state, setState: setState, enhance: enhance, load: load, el: el, digits: digits, copy: copy
  };

  /* Pages that kbtool makes have a first heading of this name; hand-written ones do not. */
  if (!document.querySelector("h1#title")) return;
  var tables = Array.from(document.querySelectorAll("article table")).filter(function (table) {
    return !table.className && table.tHead && table.tBodies.length && table.tBodies[0].rows.length > 1
      && !table.closest(".kb-prose, .highlight, [data-kb-plain]");
  });
  var made = tables.map(function (table, at) {
    return enhance(table, at + 1, table.tBodies[0].rows.length > MANY);
  });
  window.addEventListener("hashchange", function () {
    made.forEach(function (show) { show(); });
  });
})();
