/* The chart of a kernel: times over a size, for the machine and the fields that are chosen; plot.js
   draws it. What is chosen is in the address: #on=MACHINE&target=…&shape=FIELD=VALUE …&over=FIELD
   &measure=…&hide=ARM,ARM. Without scripts the page has a drawing and its figures instead. */
(function () {
  "use strict";

  var mount = document.getElementById("kb-chart");
  if (!mount || !window.kbPlot) return;

  var el = window.kbTables.el;
  var same = window.kbMeasured.same, valueOf = window.kbMeasured.valueOf;
  var text = window.kbMeasured.text, shown = window.kbMeasured.shown;
  var chooser = window.kbMeasured.chooser, labelled = window.kbMeasured.labelled, gist = window.kbMeasured.gist;
  var home = mount.dataset.home, axes = JSON.parse(mount.dataset.axes), start = JSON.parse(mount.dataset.start);
  var arms = JSON.parse(mount.dataset.arms).map(function (one) {
    return { name: one[0], tone: one[1], shape: one[2], face: one[3] };
  });
  var MEASURES = {
    between: "µs between plain kernels", chain: "µs in a chain of its own calls", ratio: "time ÷ ours",
    share: "% of the speed that the measured ceilings allow"
  };
  var FEWEST = 3;
  var data, fields, every, all, chosen = {}, line;

  /* ---- what can be chosen ---- */

  function field(name) { return fields.find(function (one) { return one.name === name; }); }

  function property(row, name) {
    if (name === "machine" || name === "target") return row.set[name];
    return valueOf(row.item.case, field(name));
  }

  /* What a line shares: machine, target, and every field but the axis. */
  function shared() {
    return ["machine", "target"].concat(fields.map(function (one) { return one.name; }).filter(function (name) {
      return name !== chosen.over;
    }));
  }

  /* The lines over the axis: cases alike in everything else, of three sizes or more. */
  function lines() {
    var names = shared(), found = {};
    every.forEach(function (row) {
      if (!(property(row, chosen.over) > 0)) return;
      var key = JSON.stringify(names.map(function (one) { return property(row, one); }));
      (found[key] = found[key] || []).push(row);
    });
    return Object.keys(found).map(function (key) { return found[key]; }).filter(function (rows) { return rows.length >= FEWEST; });
  }

  /* Of the lines that have this value, the one that keeps most of what is chosen, then of most points. */
  function settle(name, value) {
    var names = shared(), best = null;
    all = lines();
    all.forEach(function (rows) {
      if (name && !same(property(rows[0], name), value)) return;
      var kept = names.filter(function (one) { return same(property(rows[0], one), chosen[one]); }).length;
      if (!best || kept > best.kept || (kept === best.kept && rows.length > best.rows.length)) best = { kept: kept, rows: rows };
    });
    line = best.rows.slice().sort(function (x, y) { return property(x, chosen.over) - property(y, chosen.over); });
    names.forEach(function (one) { chosen[one] = property(line[0], one); });
  }

  /* ---- the address ---- */

  function read() {
    var state = window.kbTables.state();
    chosen = { over: axes.indexOf(state.get("over")) < 0 ? axes[0] : state.get("over") };
    Object.assign(chosen, { machine: start.machine, target: start.target }, start.shape);
    if (state.get("on")) chosen.machine = state.get("on");
    if (state.get("target")) chosen.target = state.get("target");
    var words = {};
    (state.get("shape") || "").split(" ").forEach(function (part) {
      var cut = part.indexOf("=");
      if (cut > 0) words[part.slice(0, cut)] = part.slice(cut + 1);
    });
    every.forEach(function (row) { // the values as the records have them
      Object.keys(words).forEach(function (name) {
        if (field(name) && text(property(row, name)) === words[name]) chosen[name] = property(row, name);
      });
    });
    chosen.measure = state.get("measure") in MEASURES ? state.get("measure") : "";
    chosen.hidden = (state.get("hide") || "").split(",").filter(Boolean);
    settle();
  }

  function write() {
    var shape = offered().filter(function (name) { return field(name); }).map(function (name) {
      return name + "=" + text(chosen[name]);
    }).join(" ");
    window.kbTables.setState({
      on: chosen.machine, target: choices("target").length > 1 ? chosen.target : "", shape: shape,
      over: chosen.over === axes[0] ? "" : chosen.over, measure: chosen.measure, hide: chosen.hidden.join(",")
    });
  }

  function choices(name) {
    var found = [];
    all.forEach(function (rows) {
      var value = property(rows[0], name);
      if (!found.some(function (one) { return same(one, value); })) found.push(value);
    });
    return found.sort(function (x, y) { return typeof x === "number" && typeof y === "number" ? x - y : 0; });
  }

  function offered() {
    return shared().filter(function (name) { return choices(name).length > 1; });
  }

  function form() {
    var made = el("form", { class: "kb-asked" });
    made.addEventListener("submit", function (event) { event.preventDefault(); });
    function add(name, title, help, values, now, change) {
      var select = chooser(values, now, function (value) {
        change(value);
        redraw("kb-chart-" + name);
      });
      select.id = "kb-chart-" + name;
      made.append(labelled(title, help, [select]));
    }
    offered().forEach(function (name) {
      var values = choices(name), known = field(name);
      add(name, known ? name : name === "machine" ? "Machine" : "Target", known ? gist(known.help) : "",
        values.map(function (value) { return [text(value), shown(value)]; }), text(chosen[name]), function (words) {
          settle(name, values.find(function (value) { return text(value) === words; }));
        });
    });
    if (axes.length > 1) {
      add("over", "Over", "", axes.map(function (name) { return [name, name]; }), chosen.over, function (name) {
        chosen.over = name;
        settle();
      });
    }
    add("measure", "Measure", "", measures().map(function (name) { return [name, MEASURES[name]]; }), measure(), function (name) {
      chosen.measure = name;
    });
    return made;
  }

  /* ---- the values ---- */

  /* The value of an arm and its quartiles. A share is of the least time, by the measure that a user meets. */
  function valuesOf(item, name, how) {
    var arm = item.arms[name];
    if (!arm) return null;
    if (how === "share") {
      var times = valuesOf(item, name, "between") || valuesOf(item, name, "chain");
      return item.floor_us === undefined || !times ? null : [times[0], times[2], times[1]].map(function (us) {
        return us === undefined ? us : 100 * item.floor_us / us;
      });
    }
    var found = how === "ratio" ? [arm.ratio, arm.ratio_low, arm.ratio_high]
      : how === "between" ? [arm.between_us, arm.between_low_us, arm.between_high_us] : [arm.us, arm.low_us, arm.high_us];
    return found[0] === undefined ? null : found;
  }

  function measures() {
    return Object.keys(MEASURES).filter(function (how) {
      return line.some(function (row) {
        return Object.keys(row.item.arms).some(function (name) { return valuesOf(row.item, name, how); });
      });
    });
  }

  function measure() {
    var known = measures();
    return known.indexOf(chosen.measure) < 0 ? known[0] : chosen.measure;
  }

  function isTime(how) { return how === "between" || how === "chain"; }

  function runOf(row, arm) { return home + data.pages[row.item.arms[arm].run]; }

  /* A measured case as a point of the chart; its size leads to what is fastest there. */
  function pointOf(row) {
    var how = measure(), size = property(row, chosen.over), values = {}, runs = {};
    arms.forEach(function (arm) {
      var found = valuesOf(row.item, arm.name, how);
      if (!found) return;
      values[arm.name] = found;
      runs[arm.name] = runOf(row, arm.name);
    });
    return {
      x: size, said: chosen.over + " " + size, title: chosen.over + " " + size.toLocaleString("en"), values: values, runs: runs,
      head: el("a", { href: window.kbMeasured.addressOf("fastest.html", row.set, fields, row.item.case) }, size.toLocaleString("en")),
      floor: isTime(how) ? row.item.floor_us : undefined
    };
  }

  /* Everything. */
  function draw() {
    var points = line.map(pointOf), how = MEASURES[measure()];
    return window.kbPlot(mount, {
      points: points, hidden: chosen.hidden, changed: write, form: form(), first: chosen.over,
      arms: arms.filter(function (arm) { return points.some(function (one) { return one.values[arm.name]; }); }),
      x: { label: chosen.over + ", " + field(chosen.over).help }, y: { label: how, most: measure() === "share" },
      title: how + " over " + chosen.over + " on " + chosen.machine + ", " + line.length + " sizes"
    });
  }

  window.kbtoolMeasured = function (told) {
    data = told;
    fields = told.fields[told.kernel];
    every = [];
    told.results.forEach(function (set) {
      set.cases.forEach(function (item) { if (item.current) every.push({ set: set, item: item }); });
    });
  };

  var redraw = window.kbPlotted({
    mount: mount, scripts: [mount.dataset.measured], read: read, write: write, draw: draw
  });
})();
