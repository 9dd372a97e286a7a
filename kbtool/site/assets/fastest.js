/* The page of a kernel that looks a shape up. What is asked is in the address:
   #on=CARD&shape=FIELD=VALUE FIELD=VALUE. The rule is that of kbtool/ledger/fastest.py, and a test
   holds the two equal. Text of records enters as text only. */

/* What the pages of a kernel share: fields, values, choices. */
(function () {
  "use strict";

  if (!window.kbTables) return;
  var el = window.kbTables.el, LONGEST = 32, GIST = 60;

  function isNumber(field) { return field.type === "int" || field.type === "float"; }

  function same(one, other) { return JSON.stringify(one) === JSON.stringify(other); }

  function valueOf(values, field) { return field.name in values ? values[field.name] : field.default; }

  function text(value) {
    if (value === null || value === undefined) return "absent";
    return Array.isArray(value) ? value.join("/") : String(value);
  }

  function shown(value) {
    if (value === null || value === undefined) return "none";
    var whole = text(value);
    return whole.length <= LONGEST ? whole : whole.slice(0, LONGEST - 1) + "…" + (Array.isArray(value) ? " (" + value.length + " values)" : "");
  }

  function chooser(values, now, change) {
    var made = el("select");
    values.forEach(function (one) {
      var option = el("option", { value: one[0] }, one[1]);
      option.selected = one[0] === now;
      made.append(option);
    });
    made.addEventListener("change", function () { change(made.value); });
    return made;
  }

  function labelled(name, help, parts) {
    var label = el("label", {}, el("span", {}, el("b", {}, name), help ? " " + help : ""));
    parts.forEach(function (part) { label.append(part); });
    return label;
  }

  /* So much of a help as stands beside a field. */
  function gist(help) { return help.length > GIST ? help.split(/[:;]/)[0] : help; }

  /* The address of a kernel's page that takes a shape, at the shape of a measured case. */
  function addressOf(page, set, fields, values) {
    var shape = fields.filter(function (field) { return field.values.length > 1; }).map(function (field) {
      return field.name + "=" + text(valueOf(values, field));
    }).join(" ");
    return page + "#" + new URLSearchParams({ on: set.machine, target: set.target, shape: shape });
  }

  window.kbMeasured = {
    isNumber: isNumber, same: same, valueOf: valueOf, text: text, shown: shown, chooser: chooser, labelled: labelled, gist: gist,
    addressOf: addressOf
  };
})();

(function () {
  "use strict";

  var mount = document.getElementById("kb-fastest");
  if (!mount || !window.kbTables) return;

  var el = window.kbTables.el, digits = window.kbTables.digits;
  var isNumber = window.kbMeasured.isNumber, same = window.kbMeasured.same, valueOf = window.kbMeasured.valueOf;
  var text = window.kbMeasured.text, shown = window.kbMeasured.shown;
  var chooser = window.kbMeasured.chooser, labelled = window.kbMeasured.labelled, gist = window.kbMeasured.gist;
  var data, fields, asked = {}, machine = "", out;
  var MOST = 3;

  /* ---- the rule ---- */

  function usOf(set, arm) {
    var us = set.measure === "between" ? arm.between_us : arm.us;
    return us === undefined ? null : us;
  }

  function fastestOf(set, item, wanted) {
    return Object.keys(item.arms).filter(function (name) {
      return wanted(item.arms[name]) && usOf(set, item.arms[name]) !== null;
    }).reduce(function (best, name) {
      return best === null || usOf(set, item.arms[name]) < usOf(set, item.arms[best]) ? name : best;
    }, null);
  }

  function isOwn(arm) { return arm.own; }

  /* How far a case is from a shape, and by which fields; null if it does not answer for it. */
  function distance(known, shape, item) {
    var far = 1, apart = [];
    var answers = known.every(function (field) {
      var one = valueOf(shape, field), other = valueOf(item.case, field);
      if (same(one, other)) return true;
      if (!isNumber(field) || !(one > 0) || !(other > 0)) return false;
      far *= Math.max(one, other) / Math.min(one, other);
      apart.push(field.name);
      return true;
    });
    return answers ? { distance: far, apart: apart } : null;
  }

  function current(name) {
    var found = [];
    data.results.forEach(function (set) {
      if (set.machine !== name) return;
      set.cases.forEach(function (item) { if (item.current) found.push({ set: set, item: item }); });
    });
    return found;
  }

  function nearest(name, shape) {
    var found = [];
    current(name).forEach(function (one) {
      var far = distance(fields, shape, one.item);
      if (!far) return;
      var own = fastestOf(one.set, one.item, isOwn);
      found.push(Object.assign(far, one, {
        own: own, us: usOf(one.set, one.item.arms[own]),
        fastest: fastestOf(one.set, one.item, function () { return true; })
      }));
    });
    found.sort(function (x, y) { return x.distance - y.distance || x.us - y.us; });
    return found.slice(0, MOST);
  }

  /* What no case of a machine has. */
  function never(name, shape) {
    var every = current(name);
    return fields.filter(function (field) {
      return !every.some(function (one) { return distance([field], shape, one.item); });
    });
  }

  function parsed(field, words) {
    if (words === "" || words === "absent") return null;
    if (isNumber(field)) return Number(words);
    if (field.type === "bool") return words === "true";
    return field.type === "ints" ? words.split("/").map(Number) : words;
  }

  /* ---- the address ---- */

  function offered() {
    return fields.filter(function (field) { return field.values.length > 1; });
  }

  /* The first case with the fewest fields that a shape has to share or that are folded away: a form has to begin
     somewhere. */
  function plainest(every) {
    function odd(one) {
      return fields.filter(function (field) {
        return (!isNumber(field) || field.default === null) && !same(valueOf(one.item.case, field), field.default);
      }).length;
    }
    return every.reduce(function (best, one) { return best && odd(best) <= odd(one) ? best : one; }, null);
  }

  function read() {
    var state = window.kbTables.state(), first = data.results[0];
    machine = state.get("on") || first.machine;
    var start = plainest(current(machine));
    asked = {};
    fields.forEach(function (field) { asked[field.name] = start ? valueOf(start.item.case, field) : field.default; });
    (state.get("shape") || "").split(" ").forEach(function (part) {
      var at = part.indexOf("="), field = fields.find(function (one) { return one.name === part.slice(0, at); });
      if (field) asked[field.name] = parsed(field, part.slice(at + 1));
    });
  }

  function write() {
    var shape = offered().filter(function (field) {
      return !same(asked[field.name], field.default);
    }).map(function (field) { return field.name + "=" + text(asked[field.name]); }).join(" ");
    window.kbTables.setState({ on: machine, shape: shape });
  }

  /* ---- the form ---- */

  function machines() {
    return Array.from(new Set(data.results.map(function (set) { return set.machine; })));
  }

  function numeric(field) {
    var list = "kb-measured-" + field.name;
    var made = el("input", { type: "number", list: list, step: field.type === "int" ? "1" : "any", inputmode: "decimal" });
    if (field.minimum !== null) made.min = field.minimum;
    if (field.maximum !== null) made.max = field.maximum;
    if (asked[field.name] !== null) made.value = asked[field.name];
    if (field.values.indexOf(null) >= 0 || field.default === null) made.placeholder = "none";
    made.addEventListener("input", function () {
      asked[field.name] = made.value === "" ? null : Number(made.value);
      answer();
    });
    return [made, el.apply(null, ["datalist", { id: list }].concat(field.values.filter(function (one) {
      return one !== null;
    }).map(function (one) { return el("option", { value: one }); })))];
  }

  function control(field) {
    if (isNumber(field)) return numeric(field);
    var values = field.values.slice();
    if (!values.some(function (one) { return same(one, asked[field.name]); })) values.push(asked[field.name]);
    return [chooser(values.map(function (one) { return [text(one), shown(one)]; }), text(asked[field.name]), function (words) {
      asked[field.name] = parsed(field, words);
      answer();
    })];
  }

  function helps() {
    var terms = el("ul");
    offered().forEach(function (field) {
      terms.append(el("li", {}, el("code", {}, field.name), ": " + field.help));
    });
    return el("details", { class: "kb-figures" }, el("summary", {}, "What the fields mean"), terms);
  }

  function form() {
    var made = el("form", { class: "kb-asked" });
    made.addEventListener("submit", function (event) { event.preventDefault(); });
    made.append(labelled("Machine", "", [chooser(machines().map(function (one) { return [one, one]; }), machine, function (name) {
      machine = name;
      answer();
    })]));
    offered().filter(function (field) { return field.default !== null; }).forEach(function (field) {
      made.append(labelled(field.name, gist(field.help), control(field)));
    });
    return made;
  }

  /* Fields that most shapes do without. */
  function rarer() {
    var fields = offered().filter(function (field) { return field.default === null; });
    if (!fields.length) return "";
    var made = el("div", { class: "kb-asked" });
    fields.forEach(function (field) { made.append(labelled(field.name, gist(field.help), control(field))); });
    var names = fields.map(function (field) { return field.name; }).join(", ");
    var all = el("details", { class: "kb-figures" }, el("summary", {}, "More fields: " + names), made);
    all.open = fields.some(function (field) { return asked[field.name] !== null; });
    return all;
  }

  /* ---- the answer ---- */

  function ratio(arm) {
    if (arm.ratio === undefined) return "";
    var range = arm.ratio_low === undefined ? "" : " (" + digits(arm.ratio_low) + "–" + digits(arm.ratio_high) + ")";
    return digits(arm.ratio) + range;
  }

  function how(set) { return set.measure === "between" ? "between plain kernels" : "in a chain of its own calls"; }

  function link(run, words, name) {
    return el("a", Object.assign({ href: mount.dataset.home + data.pages[run] }, name ? { "aria-label": name } : {}), words);
  }

  function apart(one) {
    return one.apart.map(function (name) {
      return name + " " + text(valueOf(one.item.case, fields.find(function (field) { return field.name === name; })))
        + ", not " + text(asked[name]);
    }).join("; ");
  }

  function sentence(one) {
    var arms = one.item.arms, peer = one.item.best_peer, parts = [];
    parts.push(one.distance === 1 ? "Measured: " : "Not measured. The nearest measured case is " + digits(one.distance) + " × away (" + apart(one) + "): ");
    parts.push(el("b", {}, one.fastest), " is fastest, " + digits(usOf(one.set, arms[one.fastest])) + " µs " + how(one.set) + ".");
    if (peer) {
      parts.push(" The best peer, " + peer + ", takes " + ratio(arms[peer]) + " times as long as ours"
        + (one.own === one.set.subject ? "" : " with its own choice of variant") + ".");
    } else parts.push(" No peer was timed and right.");
    return parts;
  }

  function meaning(name) {
    var told = data.implementations[name];
    return told ? el("small", { class: "kb-meaning" }, told) : "";
  }

  function table(one) {
    var names = Object.keys(one.item.arms).filter(function (name) { return usOf(one.set, one.item.arms[name]) !== null; });
    names.sort(function (x, y) { return usOf(one.set, one.item.arms[x]) - usOf(one.set, one.item.arms[y]); });
    var between = one.set.measure === "between";
    var rows = names.map(function (name) {
      var arm = one.item.arms[name], low = between ? arm.between_low_us : arm.low_us, high = between ? arm.between_high_us : arm.high_us;
      return el("tr", {},
        el("th", { scope: "row" }, name, arm.own ? " (ours, " + one.set.target + ")" : "", meaning(name)),
        el("td", {}, digits(usOf(one.set, arm)), low === undefined ? "" : el("small", {}, " " + digits(low) + "–" + digits(high))),
        el("td", {}, ratio(arm)),
        el("td", {}, link(arm.run, "run", "Run of " + name)));
    });
    var head = el("tr", {});
    ["Implementation", "µs", "÷ ours", "From"].forEach(function (name) { head.append(el("th", {}, name)); });
    var body = el("tbody");
    rows.forEach(function (row) { body.append(row); });
    return el("div", { class: "md-typeset__scrollwrap" }, el("div", { class: "md-typeset__table" },
      el("table", {}, el("thead", {}, head), body)));
  }

  function tuned(one) {
    var found = one.item.tuned;
    if (!found) return "";
    return el("p", {}, found.setting + ": " + found.variant + " chose " + found.own + " by itself, "
      + (found.own === found.best ? "and no other was faster" : "and " + found.best + " was faster") + ", in ",
      link(found.run, "the newest run that tuned this case"), ".");
  }

  function again(one) {
    var run = one.item.arms[one.item.best_peer || one.own].run, commands = one.set.repeat[run];
    if (!commands) return "";
    var said = el("output", { "aria-live": "polite" }), button = el("button", { type: "button", class: "kb-button" }, "Copy");
    button.addEventListener("click", function () { window.kbTables.copy(commands.join("\n") + "\n", said); });
    return el("div", {}, el("p", {}, "To measure it again: ", button, " ", said),
      el("pre", { class: "kb-block", tabindex: "0" }, el("code", {}, commands.join("\n"))));
  }

  function chart(one) {
    var address = window.kbMeasured.addressOf("charts.html", one.set, fields, one.item.case);
    return el("p", {}, el("a", { href: address }, "This case and its neighbours as a chart"));
  }

  function full(one) {
    return [table(one), tuned(one), chart(one), again(one)].filter(Boolean);
  }

  /* Why nothing has such a shape: a field that is no number, out of its bounds, or divides none. */
  function refused() {
    var found = [];
    fields.forEach(function (field) {
      var value = asked[field.name];
      if (!isNumber(field) || value === null) return;
      if (isNaN(value) || (field.type === "int" && value % 1 !== 0)) {
        found.push(field.name + " has to be a " + (field.type === "int" ? "whole number." : "number."));
      } else if (field.minimum !== null && value < field.minimum) {
        found.push(field.name + ": " + value + " is below the minimum, " + field.minimum + ".");
      } else if (field.maximum !== null && value > field.maximum) {
        found.push(field.name + ": " + value + " is above the maximum, " + field.maximum + ".");
      } else if (field.divides !== null && typeof asked[field.divides] === "number") {
        var multiple = asked[field.divides];
        if (value ? multiple % value : multiple) {
          found.push(field.name + ": " + value + " does not divide " + field.divides + ", " + multiple + ".");
        }
      }
    });
    return found[0];
  }

  function answer() {
    write();
    out.textContent = "";
    var wrong = refused();
    if (wrong) {
      out.append(el("p", { class: "kb-verdict" }, wrong));
      return;
    }
    var found = nearest(machine, asked);
    if (!found.length) {
      var lacking = never(machine, asked).map(function (field) { return field.name + " " + shown(asked[field.name]); });
      out.append(el("p", { class: "kb-verdict" }, "No case "
        + (lacking.length ? "with " + lacking.join(", ") : "with these fields together") + " was measured on " + machine + "."));
      return;
    }
    var told = el("p", { class: "kb-verdict" });
    sentence(found[0]).forEach(function (part) { told.append(part); });
    out.append(told);
    full(found[0]).forEach(function (part) { out.append(part); });
    found.slice(1).forEach(function (one) {
      var folded = el("details", {}, el("summary", {}, "Next: " + one.item.name + ", " + one.set.target + ", "
        + (one.distance === 1 ? "the same case" : digits(one.distance) + " × away") + ": " + one.fastest + ", "
        + digits(usOf(one.set, one.item.arms[one.fastest])) + " µs"));
      full(one).forEach(function (part) { folded.append(part); });
      out.append(folded);
    });
  }

  function draw() {
    read();
    out = el("div", { "aria-live": "polite" });
    mount.textContent = "";
    mount.append(form(), rarer(), helps(), out);
    answer();
  }

  window.kbtoolMeasured = function (told) {
    data = told;
    fields = told.fields[told.kernel];
  };
  window.kbFastest = { nearest: nearest, never: never };

  window.kbTables.load(mount.dataset.measured).then(function () {
    draw();
    window.addEventListener("hashchange", function () {
      if (location.hash.indexOf("=") >= 0) draw();
    });
  }, function (error) {
    mount.textContent = "No data because " + error.message + ".";
  });
})();
