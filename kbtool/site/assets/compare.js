/* The page that compares two arms of benchmarks. What is chosen is in the address:
   #a=RUN/ARM&b=RUN/ARM&set=CASE SET&q=words&noise=hide; RUN+RUN/ARM takes several runs of one commit
   together. Text of records enters as text only. */
(function () {
  "use strict";

  var mount = document.getElementById("kb-compare");
  if (!mount || !window.kbTables) return;

  var el = window.kbTables.el, digits = window.kbTables.digits;
  var load = window.kbTables.load, copy = window.kbTables.copy;
  var runs = [], rule = {}, loaded = {}, chosen = {}, drawn = 0;

  window.kbtoolRuns = function (data) { runs = data.runs; rule = data.rule; };
  window.kbtoolRun = function (run) { loaded[run.id] = run; };

  function side(text) {
    var at = (text || "").indexOf("/");
    if (at < 0) return null;
    var name = text.slice(0, at), every = name.split("+").map(function (id) {
      return runs.find(function (one) { return one.id === id; });
    });
    // The first is the newest; of several all must be known.
    return { run: every.indexOf(undefined) < 0 ? every[0] : undefined, runs: every, name: name, arm: text.slice(at + 1) };
  }

  /* What a side is held against where the address does not say: the baseline of its run, or any other. */
  function against(one) {
    var others = one.run.arms.filter(function (arm) { return arm !== one.arm; });
    var arm = others.indexOf(one.run.baseline) >= 0 ? one.run.baseline : others[0];
    return one.run.id + "/" + (arm || one.arm);
  }

  function read() {
    var state = window.kbTables.state();
    chosen = { set: state.get("set") || "", q: state.get("q") || "", noise: state.get("noise") || "" };
    // Of a noisy run nothing is told.
    var first = runs.find(function (run) { return !run.noisy; }) || runs[0];
    var a = state.get("a"), b = state.get("b"), text = a || b || first.id + "/" + first.arms[0];
    if (!a || !b) {
      var one = side(text), known = one && one.run, other = known ? against(one) : text;
      // The baseline is the reference, and not what is judged, unless the address says so.
      var isReference = a || (known && one.arm === one.run.baseline);
      a = isReference ? text : other;
      b = isReference ? other : text;
    }
    chosen.a = a;
    chosen.b = b;
  }

  function write() {
    window.kbTables.setState(chosen);
  }

  /* A row for each case of either side; A's come first. The rule is that of
     kbtool/ledger/timings (ADR 0041), and a test holds the two equal. */
  function compared(a, b) {
    var rest = timed(b), differ = differences(a, b).filter(function (row) { return row.weighs && !row.alike; });
    var rows = timed(a).map(function (item) {
      var at = rest.findIndex(function (other) {
        return other.name === item.name && (other.set === item.set || !other.set || !item.set);
      });
      return draft(item, at < 0 ? null : rest.splice(at, 1)[0], differ);
    });
    rest.forEach(function (item) { rows.push(draft(null, item, differ)); });
    var most = limit(rows.filter(function (row) { return "chance" in row; })
      .map(function (row) { return row.chance; }));
    rows.forEach(function (row) {
      if (!("chance" in row)) return;
      row.verdict = row.chance <= most ? (row.ratio > 1 ? "slower" : "faster") : row.small ? "same" : "too noisy";
    });
    return rows;
  }

  /* The cases that a side timed, each with what every run of it says of the case. */
  function timed(one) {
    var found = [];
    one.every.forEach(function (data) {
      var taken = [];
      data.cases.forEach(function (item) {
        if (!(one.arm in item.arms)) return;
        var known = found.find(function (other) {
          return other.name === item.name && other.set === item.set && taken.indexOf(other) < 0;
        });
        if (!known) {
          known = { name: item.name, label: item.label, set: item.set, fields: item.fields, items: [] };
          found.push(known);
        }
        taken.push(known);
        known.items.push(item);
      });
    });
    return found;
  }

  /* The right times of an arm in a case, in each run that has one. */
  function timesOf(known, arm, metric) {
    return known.items.map(function (item) { return item.arms[arm]; }).filter(function (one) {
      return !one.wrong && one[metric];
    }).map(function (one) { return one[metric]; });
  }

  /* All of them as one: the mean of the logarithms, and the outermost quartiles. */
  function together(times) {
    if (times.length === 1) return times[0].us;
    function all(at) { return times.map(function (one) { return one.us[at]; }); }
    var logs = all(0).reduce(function (sum, us) { return sum + Math.log(us); }, 0);
    return [Math.exp(logs / times.length), Math.min.apply(null, all(1)), Math.max.apply(null, all(2))];
  }

  /* A case on both sides; with the chance of its difference where there can be a verdict. */
  function draft(item, other, differ) {
    var either = item || other, set = (item && item.set) || (other && other.set) || "";
    var row = {
      name: either.name, label: either.label, set: set, verdict: "missing", ratio: null,
      text: [either.label, set].concat(Object.values(either.fields).map(String)).join(" ").toLowerCase()
    };
    if (!item || !other) return Object.assign(row, { only: item ? "A" : "B" });
    var fields = Object.keys(item.fields).filter(function (key) {
      return key in other.fields && JSON.stringify(item.fields[key]) !== JSON.stringify(other.fields[key]);
    });
    if (fields.length) return Object.assign(row, { verdict: "unlike", why: "different " + fields.join(", ") });
    var metric = ["between", "chain"].find(function (name) {
      return timesOf(item, a.arm, name).length && timesOf(other, b.arm, name).length;
    });
    if (!metric) {
      return Object.assign(row, { why: item.items[0].arms[a.arm].wrong || other.items[0].arms[b.arm].wrong || "not timed so on both sides" });
    }
    var mine = timesOf(item, a.arm, metric), theirs = timesOf(other, b.arm, metric), x = together(mine), y = together(theirs);
    Object.assign(row, { metric: metric, a: x, b: y, ratio: y[0] / x[0] });
    if (differ.length) return Object.assign(row, { verdict: "unlike" });
    if (item.items.concat(other.items).some(function (one) { return one.noise; })) return Object.assign(row, { verdict: "too noisy", ratio: null });
    var known = [mine[0].spread, theirs[0].spread];
    if (!known[0] || !known[1]) return Object.assign(row, { verdict: "too noisy" });
    var value = Math.log(y[0]) - Math.log(x[0]), small = Math.abs(value) < rule.least;
    var freedom = Math.min(known[0][1], known[1][1]), variance = known[0][0] / mine.length + known[1][0] / theirs.length;
    return Object.assign(row, { small: small, spread: Math.sqrt(variance), chance: small ? 1 : chance(value, variance, freedom) });
  }

  /* How often a variable of Student's t distribution, so scaled, is as far from 0. */
  function chance(value, variance, freedom) {
    if (variance === 0) return value ? 0 : 1;
    var angle = Math.atan(Math.abs(value) / Math.sqrt(variance * freedom)), cosine = Math.cos(angle);
    var odd = freedom % 2, term = odd ? cosine : 1, total = 0;
    for (var step = 2 + odd; step <= freedom; step += 2) {
      total += term;
      term *= cosine * cosine * (step - 1) / step;
    }
    var inner = Math.sin(angle) * total;
    return Math.max(0, 1 - (odd ? 2 / Math.PI * (angle + inner) : inner));
  }

  /* The largest chance that counts as a change (Benjamini and Hochberg); 0 if none does. */
  function limit(chances) {
    var allowed = rule["false"] / chances.length;
    return chances.slice().sort(function (x, y) { return x - y; }).reduce(function (most, one, at) {
      return one <= allowed * (at + 1) ? one : most;
    }, 0);
  }

  function of(rows, verdict) {
    return rows.filter(function (row) { return row.verdict === verdict; });
  }

  function percent(row) { return Math.abs(row.ratio - 1) * 100; }

  function range(percents) {
    var all = percents.sort(function (x, y) { return x - y; });
    var ends = [all[0], all[all.length - 1]].map(function (end) {
      return end < 10 ? end.toFixed(1) : Math.round(end).toLocaleString("en");
    });
    return ends[0] === ends[1] ? ends[0] + " %" : ends[0] + " to " + ends[1] + " %";
  }

  /* The whole in a line, as ``kbtool compare`` has it. */
  function answer(rows) {
    var alike = a.arm === b.arm, second = alike ? "B" : "B (" + b.arm + ")", than = alike ? "" : " than A (" + a.arm + ")";
    var judged = ["same", "faster", "slower"].reduce(function (sum, verdict) { return sum + of(rows, verdict).length; }, 0);
    var told = judged + of(rows, "too noisy").length, parts = [];
    ["slower", "faster"].forEach(function (verdict) {
      var found = of(rows, verdict);
      if (!found.length) return;
      parts.push((parts.length ? verdict : second + " is " + verdict + than) + " in " + found.length + " of " + told
        + (told === 1 ? " case" : " cases") + ", by " + range(found.map(percent)));
    });
    if (!parts.length) {
      parts.push(!judged ? "no verdict" : told === 1 ? "no change in 1 case"
        : "no change in " + judged + (judged < told ? " of " + told : "") + " cases");
    }
    [["too noisy", "too noisy to tell"], ["unlike", "not comparable"], ["missing", "missing"]].forEach(function (each) {
      var left = of(rows, each[0]).length;
      if (left) parts.push(left + " " + each[1]);
    });
    return parts.join("; ");
  }

  /* By how much a case that is too noisy to tell would have to differ. */
  function threshold(rows) {
    var spreads = of(rows, "too noisy").filter(function (row) { return row.spread; })
      .map(function (row) { return row.spread * 100; });
    return spreads.length ? "Too noisy to tell: " + Math.round(Math.expm1(rule.least) * 100) + " % or more apart, but runs of"
      + " the same code may differ as much; the standard deviation of B ÷ A among them is " + range(spreads) + "." : "";
  }

  function wanted(one) {
    var words = chosen.q.toLowerCase().split(/\s+/).filter(Boolean);
    return (!chosen.set || one.set === chosen.set)
      && words.every(function (word) { return one.text.indexOf(word) >= 0; });
  }

  function summary(every) {
    var pairs = every.filter(function (one) { return one.ratio !== null && one.verdict !== "unlike"; });
    var noisy = of(every, "too noisy").length, unlike = of(every, "unlike").length;
    var left = (noisy ? [["Too noisy to tell", String(noisy)]] : []).concat(unlike ? [["Not comparable", String(unlike)]] : []);
    if (!pairs.length) return left;
    function largest(verdict) {
      var found = of(pairs, verdict).sort(function (x, y) { return percent(y) - percent(x); })[0];
      return found ? digits(found.ratio) + " × at " + found.label : "none";
    }
    var logs = pairs.reduce(function (sum, one) { return sum + Math.log(one.ratio); }, 0);
    return [
      ["Cases compared", String(pairs.length)],
      ["B slower", String(of(pairs, "slower").length)],
      ["B faster", String(of(pairs, "faster").length)],
      ["Same", String(of(pairs, "same").length)],
      ["Geometric mean, B ÷ A", digits(Math.exp(logs / pairs.length))],
      ["Largest loss", largest("slower")],
      ["Largest gain", largest("faster")]
    ].concat(left);
  }

  /* So many times apart are two measured conditions, as clocks, still the same. */
  var NEAR = 1.03;

  /* The conditions of both. One that is measured, or that older records do not state, weighs only
     where both are known. */
  function differences(a, b) {
    var values = {};
    [a, b].forEach(function (one, at) {
      one.data.conditions.forEach(function (condition) {
        var row = values[condition.name] = values[condition.name] || { value: ["–", "–"], figure: [] };
        row.value[at] = condition.value;
        row.figure[at] = condition.figure;
        row.weighs = row.weighs || condition.weighs;
        row.isNew = row.isNew || condition.isNew;
      });
    });
    return Object.keys(values).map(function (name) {
      var row = values[name], x = row.figure[0], y = row.figure[1];
      var measured = x !== undefined || y !== undefined;
      var alike = x && y ? Math.max(x, y) / Math.min(x, y) <= NEAR : row.value[0] === row.value[1];
      var known = measured ? x && y : !row.isNew || row.value.indexOf("–") < 0;
      return { name: name, a: row.value[0], b: row.value[1], alike: alike, weighs: row.weighs && known };
    });
  }

  /* What a case set is called; its name where neither run's kernel has it any more. */
  function titleOf(set) { return a.data.titles[set] || b.data.titles[set] || set; }

  /* The name of a condition inside a sentence: SM clock and CUDA stay as they are. */
  function inLine(name) { return /^[A-Z]{2}/.test(name) ? name : name[0].toLowerCase() + name.slice(1); }

  function full(one) { return (one.set ? titleOf(one.set) + ": " : "") + one.label; }

  function named(one) {
    return one.arm + " (" + one.run.label + ")" + others(one);
  }

  function others(one) {
    var more = one.runs.length - 1;
    return more ? " and " + more + (more === 1 ? " more run" : " more runs") + " of the commit" : "";
  }

  var TONE = { faster: "good", slower: "bad" };

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
      var every = one[1].every.reduce(function (all, data) { return all.concat(data.noise); }, []);
      Array.from(new Set(every)).forEach(function (why) {
        found.push("The run of " + one[0] + " is " + why + ", so no ratio and no verdict is given for what it timed then.");
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

  function markdown(a, b, said, pairs, unlike) {
    function cell(text) { return String(text).replace(/\|/g, "\\|"); }
    var lines = ["**" + said + "**", "", "A: " + named(a), "B: " + named(b), ""]
      .concat(noises(a, b).map(function (why) { return "- " + why; }));
    summary(pairs).forEach(function (fact) { lines.push("- " + fact[0] + ": " + fact[1]); });
    lines.push("", "| Case | A (µs) | B (µs) | B ÷ A | B is |", "|---|---:|---:|---:|---|");
    pairs.forEach(function (one) {
      lines.push("| " + [full(one), digits(one.a[0]), digits(one.b[0]), times(one.ratio), one.verdict]
        .map(cell).join(" | ") + " |");
    });
    lines.push("");
    unlike.forEach(function (row) { lines.push("- " + row.name + ": A " + row.a + ", B " + row.b); });
    return lines.join("\n") + "\n";
  }

  function option(value, text, current) {
    var made = el("option", { value: value }, text);
    made.selected = value === current;
    return made;
  }

  /* What the list of runs is narrowed by, on each side: a commit, a card, a case set, or a part of one. */
  var NARROW = [["commit", "Commit"], ["card", "Card"], ["sets", "Cases"]];
  var narrowed = { a: {}, b: {} };

  function fitting(letter, but) {
    return runs.filter(function (run) {
      return NARROW.every(function (field) {
        var text = (field[0] !== but && narrowed[letter][field[0]] || "").toLowerCase();
        return [].concat(run[field[0]]).some(function (value) { return value.toLowerCase().indexOf(text) >= 0; });
      });
    });
  }

  /* A field that narrows, with the list of what there is to choose; typing searches the list. */
  function narrowing(letter, key, label, choose) {
    var id = "kb-" + letter + "-" + key, list = el("datalist", { id: id + "-list" });
    var values = fitting(letter, key).reduce(function (all, run) { return all.concat(run[key]); }, []);
    Array.from(new Set(values)).filter(Boolean).forEach(function (value) { list.append(el("option", { value: value })); });
    var input = el("input", { type: "search", id: id, list: id + "-list", placeholder: "any", value: narrowed[letter][key] || "" });
    input.addEventListener("change", function () {
      narrowed[letter][key] = input.value.trim();
      choose("-" + key);
    });
    return el("label", {}, label + " ", input, list);
  }

  function chooser(letter, one) {
    var run = el("select", {}), arm = el("select", {}), found = fitting(letter);
    if (one.runs.length > 1) run.append(option(one.name, one.run.label + others(one), one.name));
    (found.indexOf(one.run) < 0 ? [one.run].concat(found) : found).forEach(function (item) {
      run.append(option(item.id, item.label, one.name));
    });
    one.run.arms.forEach(function (name) { arm.append(option(name, name, one.arm)); });
    function change(id, name, field) {
      chosen[letter] = id + "/" + name;
      draw(letter + field);
    }
    function pick(next, field) {
      // Two arms of one run were compared; of two runs one looks at the same arm first.
      var wanted = a.name === b.name ? (letter === "a" ? b : a).arm : one.arm;
      var arms = [wanted, one.arm].filter(function (name) { return next.arms.indexOf(name) >= 0; });
      change(next.id, arms[0] || next.arms[0], field);
    }
    run.addEventListener("change", function () {
      pick(runs.find(function (item) { return item.id === run.value; }), "-run");
    });
    var fields = NARROW.map(function (field) {
      return narrowing(letter, field[0], field[1], function (changed) {
        var now = fitting(letter);
        if (now.length && now.indexOf(one.run) < 0) pick(now[0], changed);
        else draw(letter + changed);
      });
    });
    arm.addEventListener("change", function () { change(one.name, arm.value, "-arm"); });
    run.id = "kb-" + letter + "-run";
    arm.id = "kb-" + letter + "-arm";
    var made = el("fieldset", {}, el("legend", {}, letter === "a" ? "A, the reference" : "B, which is judged"));
    made.append.apply(made, fields.concat([el("label", { class: "kb-full" }, "Run ", run), el("label", {}, "Implementation ", arm)]));
    var meaning = one.data.implementations[one.arm];
    if (meaning) made.append(el("p", {}, el("small", {}, one.arm + ": " + meaning)));
    if (!found.length) made.append(el("p", { role: "status" }, "No run has all of these."));
    return made;
  }

  function filters(sets) {
    var set = el("select", { id: "kb-set" }, option("", "all", chosen.set));
    sets.forEach(function (name) { set.append(option(name, titleOf(name), chosen.set)); });
    var words = el("input", { type: "search", id: "kb-words", value: chosen.q });
    var noise = el("input", { type: "checkbox", id: "kb-noise" });
    noise.checked = chosen.noise === "hide";
    set.addEventListener("change", function () { chosen.set = set.value; results(); });
    words.addEventListener("input", function () { chosen.q = words.value.trim(); results(); });
    noise.addEventListener("change", function () { chosen.noise = noise.checked ? "hide" : ""; results(); });
    return el("div", { class: "kb-filter" },
      sets.length > 1 ? el("label", {}, "Case set ", set) : null,
      el("label", {}, "Cases with ", words),
      el("label", {}, noise, " Only what changed"));
  }

  var out, a, b;

  /* Everything below the choice. */
  function results() {
    write();
    var every = compared(a, b), held = every.filter(function (one) { return one.a; });
    var pairs = held.filter(wanted);
    var rows = differences(a, b), unlike = rows.filter(function (row) { return !row.alike; });
    var grave = unlike.filter(function (row) { return row.weighs; });
    out.textContent = "";
    if (grave.length) {
      var rest = grave.filter(function (row) { return row.name !== "Problem"; });
      var why = (rest.length < grave.length ? ["another problem"] : []).concat(rest.length
        ? ["different " + rest.map(function (row) { return inLine(row.name); }).join(", ")] : []);
      out.append(warning("Nothing is ranked, " + why.join("; ") + ". A ratio tells of that as much as of the code. See Conditions."));
    }
    noises(a, b).forEach(function (why) { out.append(warning(why)); });
    out.append(el("p", { id: "kb-answer" }, el("strong", {}, answer(every))));
    out.append(el("p", {}, el("small", {}, "A: " + named(a)), el("br"), el("small", {}, "B: " + named(b)),
      el("br"), el("small", {}, threshold(every))));
    if (!pairs.length) {
      out.append(el("p", {}, el("em", {}, held.length
        ? "No case passes the filters: " + held.length + " are left out."
        : "No data because A and B have no case in common that both measured.")));
    } else {
      out.append.apply(out, figures(answer(every), held, pairs, unlike));
    }
    function names(test, say) { return every.filter(test).map(say); }
    function only(letter) {
      return names(function (one) { return one.only === letter; }, function (one) { return one.label; });
    }
    [list("Only in A", only("A")), list("Only in B", only("B")),
      list("Not compared", names(function (one) { return !one.a && !one.only; }, function (one) { return one.label + ": " + one.why; }))]
      .forEach(function (part) { if (part) out.append(part); });
    out.append.apply(out, conditions(rows, unlike));
  }

  function figures(said, held, pairs, unlike) {
    var facts = el("div", { class: "kb-facts" });
    summary(pairs).forEach(function (fact) {
      facts.append(el("p", {}, el("small", {}, fact[0] + " "), el("br"), fact[1]));
    });
    var shown = pairs.filter(function (one) { return chosen.noise !== "hide" || one.verdict in TONE; });
    var made = table(["Case", "A (µs)", "B (µs)", "B ÷ A", "B is"], shown.map(function (one) {
      return el("tr", {}, el("td", {}, el("span", { class: "kb-long", "data-case": (one.set ? one.set + "/" : "") + one.name }, full(one))), time(one.a), time(one.b),
        el("td", { style: "text-align: right", "data-sort": one.ratio === null ? "–" : one.ratio }, times(one.ratio)),
        el("td", {}, el("span", { class: "kb-chip kb-chip--" + (TONE[one.verdict] || "plain") }, one.verdict)));
    }), [1, 2, 3]);
    var copied = el("output", { "aria-live": "polite" });
    var button = el("button", { type: "button", class: "kb-button" }, "Copy as Markdown");
    button.addEventListener("click", function () { copy(markdown(a, b, said, shown, unlike), copied); });
    var hidden = held.length - shown.length;
    var count = el("p", { "aria-live": "polite" }, shown.length + " of " + held.length + (held.length === 1 ? " case" : " cases") + " shown"
      + (hidden && pairs.length > shown.length ? "; the figures above count the others too" : "") + ". ", button, " ", copied);
    var frame = framed(made);
    window.kbTables.enhance(made, 1, false);
    return [facts, count, frame];
  }

  function conditions(rows, unlike) {
    var same = rows.filter(function (row) { return unlike.indexOf(row) < 0; });
    var parts = [el("h2", {}, "Conditions")];
    if (a.name === b.name) {
      parts.push(el("p", {}, "Both are of one run, which timed its implementations in turn."));
    } else if (unlike.length) {
      parts.push(framed(table(["What differs", "A", "B"], unlike.map(function (row) {
        return el("tr", {}, el("th", { scope: "row" }, row.name), el("td", {}, row.a), el("td", {}, row.b));
      }), [])));
    }
    var alike = same.map(function (row) {
      return row.name + " " + row.a + (row.a === row.b ? "" : " and " + row.b);
    }).join("; ");
    if (alike) parts.push(el("details", {}, el("summary", {}, "The same in both: " + same.length), el("p", {}, alike)));
    parts.push(el("h2", {}, "Measure again"));
    [["A", a], ["B", b]].forEach(function (one) {
      if (one[0] === "B" && b.name === a.name) return;
      var links = el("p", {}, one[0] + ": ");
      one[1].every.forEach(function (data, at) { links.append(at ? ", " : "", el("a", { href: data.page }, "run " + data.id)); });
      parts.push(links);
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
      fail("No data because " + (!unknown ? "the address names no run and implementation, as RUN/IMPLEMENTATION: " + (chosen.b || chosen.a)
        : !unknown.run ? "this site has no run " + unknown.name
        : "the run " + unknown.name + " timed no implementation " + unknown.arm) + ".");
      mount.append(el("p", {}, el("a", { href: "compare.html" }, "Compare the implementations of the newest run")));
      return;
    }
    Promise.all(a.runs.concat(b.runs).map(function (run) {
      return loaded[run.id] || load(run.script);
    })).then(function () {
      if (turn !== drawn) return; // another choice was made meanwhile
      [a, b].forEach(function (one) {
        one.every = one.runs.map(function (run) { return loaded[run.id]; });
        one.data = one.every[0];
      });
      var sets = Array.from(new Set(compared(a, b).filter(function (one) { return one.a; }).map(function (one) { return one.set; }))).filter(Boolean);
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
