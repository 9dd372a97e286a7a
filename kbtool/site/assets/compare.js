/* The page that compares two arms of benchmarks. What is chosen is in the address:
   #a=RUN/ARM&b=RUN/ARM&set=CASE SET&q=words&noise=hide. Text of records enters as text only. */
(function () {
  "use strict";

  var mount = document.getElementById("kb-compare");
  if (!mount || !window.kbTables) return;

  var runs = [], loaded = {}, chosen = {}, drawn = 0;

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
  window.kbtoolRuns = function (list) { runs = list; };
  window.kbtoolRun = function (run) { loaded[run.id] = run; };

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
    var fixed = Math.min(Math.max(places, 0), 9);
    return shown.toLocaleString("en", { minimumFractionDigits: fixed, maximumFractionDigits: fixed });
  }

  function side(text) {
    var at = (text || "").indexOf("/");
    if (at < 0) return null;
    var name = text.slice(0, at), run = runs.find(function (one) { return one.id === name; });
    return { run: run, name: name, arm: text.slice(at + 1) };
  }

  /* What A is held against where the address does not say: the baseline of its run, or any other. */
  function against(a) {
    var others = a.run.arms.filter(function (arm) { return arm !== a.arm; });
    var arm = others.indexOf(a.run.baseline) >= 0 ? a.run.baseline : others[0];
    return a.run.id + "/" + (arm || a.arm);
  }

  function read() {
    var state = window.kbTables.state();
    chosen = { set: state.get("set") || "", q: state.get("q") || "", noise: state.get("noise") || "" };
    // Of a noisy run nothing is told.
    var first = runs.find(function (run) { return !run.noisy; }) || runs[0];
    chosen.a = state.get("a") || first.id + "/" + first.arms[0];
    var a = side(chosen.a);
    chosen.b = state.get("b") || (a && a.run ? against(a) : "");
  }

  function write() {
    window.kbTables.setState(chosen);
  }

  /* Pairs of cases, and those that only one side has. */
  function match(a, b) {
    function timed(one) {
      return one.data.cases.filter(function (item) { return one.arm in item.arms; });
    }
    var rest = timed(b), found = { pairs: [], onlyA: [], unlike: [] };
    timed(a).forEach(function (item) {
      var at = rest.findIndex(function (other) {
        return other.name === item.name && (other.set === item.set || !other.set || !item.set);
      });
      if (at < 0) {
        found.onlyA.push(item.name);
        return;
      }
      var other = rest.splice(at, 1)[0];
      var differ = Object.keys(item.fields).filter(function (key) {
        return key in other.fields && JSON.stringify(item.fields[key]) !== JSON.stringify(other.fields[key]);
      });
      var why = item.refused || other.refused || (differ.length && "unlike in " + differ.join(", "))
        || (item.wrong.indexOf(a.arm) >= 0 && "A's output is wrong")
        || (other.wrong.indexOf(b.arm) >= 0 && "B's output is wrong");
      if (why) found.unlike.push(item.name + ": " + why);
      else found.pairs.push(pair(item, other, item.arms[a.arm], other.arms[b.arm]));
    });
    found.onlyB = rest.map(function (item) { return item.name; });
    return found;
  }

  function pair(item, other, x, y) {
    // [median, 25th, 75th percentile]: apart, or within noise of one another.
    // Of a noisy run there is neither ratio nor verdict: noise can turn which is faster.
    var apart = x[2] < y[1] || y[2] < x[1], noisy = item.noise || other.noise;
    var set = item.set || other.set || "";
    return {
      name: item.name, set: set, a: x, b: y, ratio: noisy ? null : y[0] / x[0],
      verdict: noisy ? "noisy" : !apart ? "within noise" : x[0] < y[0] ? "faster" : "slower",
      text: [item.name, set].concat(Object.values(item.fields).map(String)).join(" ").toLowerCase()
    };
  }

  function wanted(one) {
    var words = chosen.q.toLowerCase().split(/\s+/).filter(Boolean);
    return (!chosen.set || one.set === chosen.set)
      && words.every(function (word) { return one.text.indexOf(word) >= 0; });
  }

  function summary(every) {
    var pairs = every.filter(function (one) { return one.ratio !== null; });
    var noisy = every.length - pairs.length;
    var left = noisy ? [["Noisy, not compared", String(noisy)]] : [];
    if (!pairs.length) return left;
    function count(verdict) {
      return pairs.filter(function (one) { return one.verdict === verdict; }).length;
    }
    function extreme(verdict, sign) {
      var found = pairs.filter(function (one) { return one.verdict === verdict; })
        .sort(function (x, y) { return sign * (y.ratio - x.ratio); })[0];
      return found ? digits(found.ratio) + " × at " + found.name : "none outside noise";
    }
    var logs = pairs.reduce(function (sum, one) { return sum + Math.log(one.ratio); }, 0);
    return [
      ["Cases compared", String(pairs.length)],
      ["A faster", String(count("faster"))],
      ["A slower", String(count("slower"))],
      ["Within noise", String(count("within noise"))],
      ["Geometric mean, B ÷ A", digits(Math.exp(logs / pairs.length))],
      ["Largest gain", extreme("faster", 1)],
      ["Largest loss", extreme("slower", -1)]
    ].concat(left);
  }

  /* So many times apart are two measured conditions, as clocks, still the same. */
  var NEAR = 1.03;

  /* The conditions of both. One that is measured weighs only where both are known. */
  function differences(a, b) {
    var values = {};
    [a, b].forEach(function (one, at) {
      one.data.conditions.forEach(function (condition) {
        var row = values[condition.name] = values[condition.name] || { value: ["–", "–"], figure: [] };
        row.value[at] = condition.value;
        row.figure[at] = condition.figure;
        row.weighs = row.weighs || condition.weighs;
      });
    });
    return Object.keys(values).map(function (name) {
      var row = values[name], x = row.figure[0], y = row.figure[1];
      var measured = x !== undefined || y !== undefined;
      var alike = x && y ? Math.max(x, y) / Math.min(x, y) <= NEAR : row.value[0] === row.value[1];
      return { name: name, a: row.value[0], b: row.value[1], alike: alike, weighs: row.weighs && (!measured || (x && y)) };
    });
  }

  function full(one) {
    return (one.set ? one.set + "/" : "") + one.name;
  }

  function named(one) {
    return one.arm + " (" + one.run.label + ")";
  }

  var TONE = { faster: "good", slower: "bad", "within noise": "plain", noisy: "plain" };

  function time(cell) {
    return el("td", { style: "text-align: right", "data-sort": cell[0] }, digits(cell[0]) + " ",
      el("small", {}, digits(cell[1]) + "–" + digits(cell[2])));
  }

  function times(ratio) {
    return ratio === null ? "–" : digits(ratio);
  }

  /* Why pairs have no verdict, in a line for each side that is noisy. */
  function noises(a, b) {
    var found = [];
    [["A", a], ["B", b]].forEach(function (one) {
      one[1].data.noise.forEach(function (why) {
        found.push("The run of " + one[0] + " is " + why + ", so no ratio and no verdict is told of what it timed then.");
      });
    });
    return found;
  }

  function table(header, rows, right) {
    var body = el("tbody");
    rows.forEach(function (row) { body.append(row); });
    var head = el("tr");
    header.forEach(function (text, at) {
      head.append(el("th", right.indexOf(at) >= 0 ? { style: "text-align: right" } : {}, text));
    });
    return el("table", {}, el("thead", {}, head), body);
  }

  /* As the theme frames the tables of a page; theme.js lets a keyboard scroll it. */
  function framed(made) {
    return el("div", { class: "md-typeset__scrollwrap" }, el("div", { class: "md-typeset__table" }, made));
  }

  function warning(text) {
    return el("div", { class: "admonition warning" }, el("p", {}, text));
  }

  function list(title, names) {
    var items = el("ul");
    names.forEach(function (name) { items.append(el("li", {}, name)); });
    return names.length ? el("details", {}, el("summary", {}, title + ": " + names.length), items) : null;
  }

  function markdown(a, b, pairs, unlike) {
    function cell(text) { return String(text).replace(/\|/g, "\\|"); }
    var lines = ["A: " + named(a), "B: " + named(b), ""].concat(noises(a, b).map(function (why) { return "- " + why; }));
    summary(pairs).forEach(function (fact) { lines.push("- " + fact[0] + ": " + fact[1]); });
    lines.push("", "| Case | A (µs) | B (µs) | B ÷ A | Verdict |", "|---|---:|---:|---:|---|");
    pairs.forEach(function (one) {
      lines.push("| " + [full(one), digits(one.a[0]), digits(one.b[0]), times(one.ratio), one.verdict]
        .map(cell).join(" | ") + " |");
    });
    lines.push("");
    unlike.forEach(function (row) { lines.push("- " + row.name + ": A " + row.a + ", B " + row.b); });
    return lines.join("\n") + "\n";
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

  function option(value, text, current) {
    var made = el("option", { value: value }, text);
    made.selected = value === current;
    return made;
  }

  function chooser(letter, one) {
    var run = el("select", {}), arm = el("select", {});
    runs.forEach(function (item) {
      run.append(option(item.id, item.label, one.name));
    });
    one.run.arms.forEach(function (name) { arm.append(option(name, name, one.arm)); });
    function change(id, name, field) {
      chosen[letter] = id + "/" + name;
      draw(letter + field);
    }
    run.addEventListener("change", function () {
      var next = runs.find(function (item) { return item.id === run.value; });
      // Two arms of one run were compared; of two runs one looks at the same arm first.
      var wanted = a.name === b.name ? (letter === "a" ? b : a).arm : one.arm;
      var arms = [wanted, one.arm].filter(function (name) { return next.arms.indexOf(name) >= 0; });
      change(next.id, arms[0] || next.arms[0], "-run");
    });
    arm.addEventListener("change", function () { change(one.name, arm.value, "-arm"); });
    run.id = "kb-" + letter + "-run";
    arm.id = "kb-" + letter + "-arm";
    return el("fieldset", {}, el("legend", {}, letter.toUpperCase() + (letter === "a" ? ": looked at" : ": held against")),
      el("label", {}, "Run ", run), el("label", {}, "Arm ", arm));
  }

  function filters(sets) {
    var set = el("select", { id: "kb-set" }, option("", "all", chosen.set));
    sets.forEach(function (name) { set.append(option(name, name, chosen.set)); });
    var words = el("input", { type: "search", id: "kb-words", value: chosen.q });
    var noise = el("input", { type: "checkbox", id: "kb-noise" });
    noise.checked = chosen.noise === "hide";
    set.addEventListener("change", function () { chosen.set = set.value; results(); });
    words.addEventListener("input", function () { chosen.q = words.value.trim(); results(); });
    noise.addEventListener("change", function () { chosen.noise = noise.checked ? "hide" : ""; results(); });
    return el("div", { class: "kb-filter" },
      sets.length > 1 ? el("label", {}, "Case set ", set) : null,
      el("label", {}, "Cases with ", words),
      el("label", {}, noise, " Hide what is within noise"));
  }

  var out, a, b;

  /* Everything below the choice. */
  function results() {
    write();
    var found = match(a, b), pairs = found.pairs.filter(wanted);
    var rows = differences(a, b), unlike = rows.filter(function (row) { return !row.alike; });
    var grave = unlike.filter(function (row) { return row.weighs; });
    out.textContent = "";
    if (grave.length) {
      out.append(warning("Unlike is compared with unlike: " + grave.map(function (row) { return row.name; }).join(", ")
        + " differ, and a ratio tells of that as much as of the code. They stand under Conditions."));
    }
    noises(a, b).forEach(function (why) { out.append(warning(why)); });
    if (!pairs.length) {
      out.append(el("p", {}, el("em", {}, found.pairs.length
        ? "No case passes the filters: " + found.pairs.length + " are left out."
        : "No data because A and B have no case in common that both measured.")));
    } else {
      out.append.apply(out, figures(found, pairs, unlike));
    }
    [list("Only in A", found.onlyA), list("Only in B", found.onlyB), list("Not compared", found.unlike)]
      .forEach(function (part) { if (part) out.append(part); });
    out.append.apply(out, conditions(rows, unlike));
  }

  function figures(found, pairs, unlike) {
    var facts = el("div", { class: "kb-facts" });
    summary(pairs).forEach(function (fact) {
      facts.append(el("p", {}, el("small", {}, fact[0] + " "), el("br"), fact[1]));
    });
    var shown = pairs.filter(function (one) { return chosen.noise !== "hide" || one.verdict !== "within noise"; });
    var made = table(["Case", "A (µs)", "B (µs)", "B ÷ A", "A is"], shown.map(function (one) {
      return el("tr", {}, el("td", {}, el("span", { class: "kb-long" }, full(one))), time(one.a), time(one.b),
        el("td", { style: "text-align: right", "data-sort": one.ratio === null ? "–" : one.ratio }, times(one.ratio)),
        el("td", {}, el("span", { class: "kb-chip kb-chip--" + TONE[one.verdict] }, one.verdict)));
    }), [1, 2, 3]);
    var said = el("output", { "aria-live": "polite" });
    var button = el("button", { type: "button", class: "kb-button" }, "Copy as Markdown");
    button.addEventListener("click", function () { copy(markdown(a, b, shown, unlike), said); });
    var hidden = found.pairs.length - shown.length;
    var count = el("p", { "aria-live": "polite" }, shown.length + " of " + found.pairs.length + (found.pairs.length === 1 ? " case" : " cases") + " shown"
      + (hidden && pairs.length > shown.length ? "; the figures above count those within noise too" : "") + ". ", button, " ", said);
    var frame = framed(made);
    window.kbTables.enhance(made, 1, false);
    return [facts, count, frame];
  }

  function conditions(rows, unlike) {
    var same = rows.filter(function (row) { return unlike.indexOf(row) < 0; });
    var parts = [el("h2", {}, "Conditions")];
    if (a.name === b.name) {
      parts.push(el("p", {}, "Both are of one run, which timed its arms in turn."));
    } else if (unlike.length) {
      parts.push(framed(table(["What differs", "A", "B"], unlike.map(function (row) {
        return el("tr", {}, el("th", { scope: "row" }, row.name), el("td", {}, row.a), el("td", {}, row.b));
      }), [])));
    }
    var alike = same.map(function (row) {
      return row.name + " " + row.a + (row.a === row.b ? "" : " and " + row.b);
    }).join("; ");
    if (alike) parts.push(el("details", {}, el("summary", {}, "Alike: " + same.length), el("p", {}, alike)));
    parts.push(el("h2", {}, "Measure again"));
    [["A", a], ["B", b]].forEach(function (one) {
      if (one[0] === "B" && b.name === a.name) return;
      parts.push(el("p", {}, one[0] + ": ", el("a", { href: one[1].data.page }, "run " + one[1].name)));
      parts.push(el("pre", { class: "kb-block" }, el("code", {}, one[1].data.again)));
    });
    return parts;
  }

  function fail(text) {
    mount.textContent = "";
    mount.append(warning(text));
  }

  /* Everything. ``focus`` names the field that was changed: it is made anew. */
  function draw(focus) {
    var turn = drawn += 1;
    a = side(chosen.a);
    b = side(chosen.b);
    var unknown = [a, b].find(function (one) { return !one || !one.run || one.run.arms.indexOf(one.arm) < 0; });
    if (unknown !== undefined) {
      fail("No data because this site has no run and arm of the name "
        + (unknown ? unknown.name + "/" + unknown.arm : chosen.b || chosen.a) + ".");
      return;
    }
    Promise.all([a, b].map(function (one) {
      return loaded[one.name] || load(one.run.script);
    })).then(function () {
      if (turn !== drawn) return; // another choice was made meanwhile
      a.data = loaded[a.name];
      b.data = loaded[b.name];
      var sets = Array.from(new Set(match(a, b).pairs.map(function (one) { return one.set; }))).filter(Boolean);
      if (sets.indexOf(chosen.set) < 0) chosen.set = "";
      var swap = el("button", { type: "button", class: "kb-button", id: "kb-swap" }, "Swap A and B");
      swap.addEventListener("click", function () {
        var was = chosen.a;
        chosen.a = chosen.b;
        chosen.b = was;
        draw("swap");
      });
      out = el("div");
      mount.textContent = "";
      mount.append(el("div", { class: "kb-choice" }, chooser("a", a), chooser("b", b), swap), filters(sets), out);
      results();
      var field = document.getElementById("kb-" + focus);
      if (field) field.focus();
    }, function (error) { fail("No data because " + error.message + "."); });
  }

  load("compare-runs.js").then(function () {
    read();
    draw();
    window.addEventListener("hashchange", function () {
      if (location.hash.indexOf("=") < 0) return; // an anchor of the page
      read();
      draw();
      mount.scrollIntoView({ block: "nearest" });
    });
  }, function (error) { fail("No data because " + error.message + "."); });
})();
