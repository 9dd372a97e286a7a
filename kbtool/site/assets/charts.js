/* The chart of a kernel: times over a size, for the machine and the fields that are chosen, drawn by
   uPlot. What is chosen is in the address: #on=MACHINE&target=…&shape=FIELD=VALUE …&over=FIELD
   &measure=…&hide=ARM,ARM. Without scripts the page has a drawing and its figures instead. */
(function () {
  "use strict";

  var mount = document.getElementById("kb-chart");
  if (!mount || !window.kbTables) return;

  var el = window.kbTables.el, digits = window.kbTables.digits, load = window.kbTables.load;
  var same = window.kbMeasured.same, valueOf = window.kbMeasured.valueOf;
  var text = window.kbMeasured.text, shown = window.kbMeasured.shown;
  var chooser = window.kbMeasured.chooser, labelled = window.kbMeasured.labelled, gist = window.kbMeasured.gist;
  var home = mount.dataset.home, axes = JSON.parse(mount.dataset.axes), start = JSON.parse(mount.dataset.start);
  var arms = JSON.parse(mount.dataset.arms).map(function (one) {
    return { name: one[0], tone: one[1], shape: one[2], face: one[3] };
  });
  var MEASURES = {
    between: "µs between plain kernels", chain: "µs in a chain of its own calls", ratio: "time ÷ ours"
  };
  var FEWEST = 3;
  var data, fields, every, all, chosen = {}, line, drawnArms, plot, at = null, on = 0;
  var place, told, said, legend, figures;

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
      var select = chooser(values, now, function (value) { change(value); draw(name); });
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

  function valuesOf(item, name, how) {
    var arm = item.arms[name];
    if (!arm) return null;
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

  function round(value) {
    if (value >= 1e3 && value < 1e5 && value % 1 === 0) return value.toLocaleString("en");
    var unit = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(function (one) { return value >= one[0]; });
    return unit ? Number((value / unit[0]).toPrecision(3)) + unit[1] : String(Number(value.toPrecision(3)));
  }

  function spread(values) {
    var range = values[1] === undefined ? "" : " (" + digits(values[1]) + "–" + digits(values[2]) + ")";
    return digits(values[0]) + range;
  }

  function tone(arm) { return getComputedStyle(document.body).getPropertyValue("--kb-series-" + arm.tone).trim(); }

  function color(name) { return getComputedStyle(document.body).getPropertyValue(name).trim(); }

  function runOf(row, arm) { return home + data.pages[row.item.arms[arm.name].run]; }

  /* ---- the drawing ---- */

  function columns() {
    var made = [line.map(function (row) { return property(row, chosen.over); })];
    drawnArms.forEach(function (arm) {
      made.push(line.map(function (row) {
        var values = valuesOf(row.item, arm.name, measure());
        return values ? values[0] : null;
      }));
    });
    made.push(line.map(function (row) {
      return measure() === "ratio" ? null : row.item.floor_us === undefined ? null : row.item.floor_us;
    }));
    return made;
  }

  /* The marks and the bars of the points: those of the drawings that need no script. */
  function marks(u) {
    var ratio = window.uPlot.pxRatio, how = measure();
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    drawnArms.forEach(function (arm, number) {
      if (!u.series[number + 1].show) return;
      line.forEach(function (row) {
        var values = valuesOf(row.item, arm.name, how);
        if (!values) return;
        var x = u.valToPos(property(row, chosen.over), "x", true), y = u.valToPos(values[0], "y", true);
        u.ctx.strokeStyle = u.ctx.fillStyle = tone(arm);
        u.ctx.lineWidth = ratio;
        if (values[1] !== undefined) {
          u.ctx.beginPath();
          u.ctx.moveTo(x, u.valToPos(values[1], "y", true));
          u.ctx.lineTo(x, u.valToPos(values[2], "y", true));
          u.ctx.stroke();
        }
        u.ctx.save();
        u.ctx.translate(x, y);
        u.ctx.scale(ratio, ratio);
        var shape = new Path2D("M0,0" + arm.shape);
        if (arm.face) u.ctx.fill(shape);
        else {
          u.ctx.lineWidth = 2;
          u.ctx.stroke(shape);
        }
        u.ctx.restore();
      });
    });
    u.ctx.restore();
  }

  function axis(label, values) {
    var ink = color("--md-default-fg-color"), grid = color("--md-default-fg-color--lightest");
    return {
      label: label, stroke: ink, font: "12px sans-serif", labelFont: "12px sans-serif", labelSize: 18, size: 46,
      grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, values: values
    };
  }

  function named(u, splits) {
    return splits.map(function (value) { return value === null ? "" : round(value); });
  }

  /* A scale that ends a little beyond what it shows, not at the next power. */
  function near(u, low, high) {
    if (low === null) return [1, 10];
    var beyond = Math.max(1.02, Math.pow(high / low, 0.05));
    return [low / beyond, high * beyond];
  }

  /* Round figures, as many as there is room for: 1, 2 and 5 times 10ⁿ, or powers of two; of what
     varies little, those of a linear scale. */
  function splits(factors, base) {
    return function (u, number, low, high) {
      var found = [], rough = (high - low) / 5, step;
      if (high < 3 * low) {
        step = Math.pow(10, Math.floor(Math.log10(rough)));
        step *= [1, 2, 5, 10].find(function (one) { return one * step >= rough * 0.999; });
        for (var next = Math.ceil(low / step); next * step <= high; next += 1) found.push(next * step);
        return found;
      }
      var power = Math.pow(base, Math.floor(Math.log(low) / Math.log(base)));
      for (; power <= high; power *= base) {
        factors.forEach(function (factor) { if (factor * power >= low && factor * power <= high) found.push(factor * power); });
      }
      var most = number === 0 ? u.width / 55 : 10;
      return found.filter(function (_, each) { return each % Math.ceil(found.length / most) === 0; });
    };
  }

  function options() {
    var how = measure(), known = field(chosen.over), bad = color("--kb-bad");
    return {
      width: place.clientWidth, height: place.clientWidth < 500 ? 300 : 380, legend: { show: false }, padding: [10, 12, 0, 0],
      scales: { x: { time: false, distr: 3, log: 2, range: near }, y: { distr: 3, log: 10, range: near } },
      cursor: { points: { show: false }, drag: { x: true, y: false, dist: 5 } },
      series: [{}].concat(drawnArms.map(function (arm) {
        return { label: arm.name, stroke: function () { return tone(arm); }, width: 1.5, spanGaps: true,
          points: { show: false }, show: chosen.hidden.indexOf(arm.name) < 0 };
      }), [{ label: "least time", stroke: bad, width: 1.5, dash: [6, 3], spanGaps: true, points: { show: false } }]),
      axes: [
        Object.assign(axis(chosen.over + ", " + known.help, named), { splits: splits([1], 2), filter: function (u, all) { return all; } }),
        Object.assign(axis(MEASURES[how], named), { splits: splits([1, 2, 5], 10), filter: function (u, all) { return all; } })
      ],
      hooks: { draw: [marks], setCursor: [function (u) { if (u.cursor.idx !== at && u.cursor.left >= 0) point(u.cursor.idx); }] }
    };
  }

  function mark(arm) {
    var shape = '<svg viewBox="-7 -7 14 14" width="14" height="14" aria-hidden="true"><g class="kb-series-' + arm.tone
      + '"><path class="kb-mark' + (arm.face ? "" : " kb-open") + '" d="M0,0' + arm.shape + '"/></g></svg>';
    var made = el("span", { class: "kb-plot kb-key" });
    made.innerHTML = shape; // from the page's own data: numbers and a path
    return made;
  }

  function visible() {
    return drawnArms.filter(function (arm) { return chosen.hidden.indexOf(arm.name) < 0; });
  }

  /* Tell the values at one size; the arm that the keyboard is on comes first. */
  function point(number) {
    at = number;
    told.textContent = "";
    if (number === null || number === undefined) return;
    var row = line[number], list = el("ul", { class: "kb-readout" });
    var seen = visible().filter(function (arm) { return valuesOf(row.item, arm.name, measure()); });
    seen.sort(function (x, y) { return valuesOf(row.item, x.name, measure())[0] - valuesOf(row.item, y.name, measure())[0]; });
    on = Math.min(on, seen.length - 1);
    seen.forEach(function (arm, each) {
      list.append(el("li", each === on ? { class: "kb-on" } : {}, mark(arm),
        el("a", { href: runOf(row, arm) }, arm.name), " " + spread(valuesOf(row.item, arm.name, measure()))));
    });
    told.append(el("p", {}, el("b", {}, chosen.over + " " + property(row, chosen.over).toLocaleString("en")), ", " + MEASURES[measure()]
      + (row.item.floor_us !== undefined && measure() !== "ratio" ? "; least time " + digits(row.item.floor_us) : "")), list);
    if (seen[on]) {
      said.textContent = chosen.over + " " + property(row, chosen.over) + ": " + seen[on].name + " "
        + spread(valuesOf(row.item, seen[on].name, measure()));
    }
    return seen;
  }

  function move(number) {
    var u = plot;
    u.setCursor({ left: u.valToPos(property(line[number], chosen.over), "x"), top: u.bbox.height / 2 / window.uPlot.pxRatio }, false);
    point(number);
  }

  function zoom(factor) {
    var low = Math.log(plot.scales.x.min), high = Math.log(plot.scales.x.max), middle = (low + high) / 2;
    if (at !== null && line[at]) middle = Math.log(property(line[at], chosen.over));
    plot.setScale("x", { min: Math.exp(middle + (low - middle) * factor), max: Math.exp(middle + (high - middle) * factor) });
  }

  function whole() { plot.setData(columns(), true); }

  function key(event) {
    var steps = { ArrowLeft: -1, ArrowRight: 1, Home: -line.length, End: line.length };
    if (event.key in steps) {
      var from = at === null ? (steps[event.key] > 0 ? -1 : line.length) : at;
      move(Math.max(0, Math.min(line.length - 1, from + steps[event.key])));
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      if (at === null) move(0);
      on = Math.max(0, on + (event.key === "ArrowUp" ? -1 : 1));
      point(at);
    } else if (event.key === "Enter" && at !== null) {
      var seen = point(at);
      if (seen[on]) location.href = runOf(line[at], seen[on]);
    } else if (event.key === "+") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0" || event.key === "Escape") whole();
    else return;
    event.preventDefault();
  }

  /* The point that was clicked, if one was: not where a part was drawn out to be enlarged. */
  function click(event) {
    if (event.pointerType === "touch" || at === null || at === undefined) return;
    var box = plot.over.getBoundingClientRect(), best = null, row = line[at];
    visible().forEach(function (arm) {
      var values = valuesOf(row.item, arm.name, measure());
      if (!values) return;
      var x = plot.valToPos(property(row, chosen.over), "x") + box.left - event.clientX;
      var far = Math.hypot(x, plot.valToPos(values[0], "y") + box.top - event.clientY);
      if (far < 12 && (!best || far < best.far)) best = { far: far, arm: arm };
    });
    if (best) location.href = runOf(row, best.arm);
  }

  function keys() {
    var made = el("div", { class: "kb-legend", role: "group", "aria-label": "Implementations shown" });
    drawnArms.forEach(function (arm, number) {
      var button = el("button", { type: "button", class: "kb-button", "aria-pressed": String(chosen.hidden.indexOf(arm.name) < 0) }, mark(arm), " " + arm.name);
      button.addEventListener("click", function () {
        var hidden = chosen.hidden.indexOf(arm.name);
        if (hidden < 0) chosen.hidden.push(arm.name);
        else chosen.hidden.splice(hidden, 1);
        button.setAttribute("aria-pressed", String(hidden >= 0));
        plot.setSeries(number + 1, { show: hidden >= 0 });
        point(at);
        write();
      });
      made.append(button);
    });
    if (measure() !== "ratio" && line.some(function (row) { return row.item.floor_us !== undefined; })) {
      made.append(el("span", { class: "kb-floor" }, "least time by the measured ceilings"));
    }
    return made;
  }

  function tools() {
    var made = el("div", { class: "kb-tools", role: "group", "aria-label": "Zoom" });
    [["Zoom in", function () { zoom(0.5); }], ["Zoom out", function () { zoom(2); }], ["Whole line", whole]].forEach(function (one) {
      var button = el("button", { type: "button", class: "kb-button" }, one[0]);
      button.addEventListener("click", one[1]);
      made.append(button);
    });
    return made;
  }

  /* The figures of the line, each with a link to its run; a size leads to what is fastest there. */
  function list() {
    var head = el("tr", {}, el("th", {}, chosen.over)), body = el("tbody");
    drawnArms.forEach(function (arm) { head.append(el("th", {}, arm.name)); });
    var floor = measure() !== "ratio" && line.some(function (row) { return row.item.floor_us !== undefined; });
    if (floor) head.append(el("th", {}, "Least time"));
    line.forEach(function (row) {
      var size = el("a", { href: window.kbMeasured.addressOf("fastest.html", row.set, fields, row.item.case) },
        property(row, chosen.over).toLocaleString("en"));
      var made = el("tr", {}, el("th", { scope: "row" }, size));
      drawnArms.forEach(function (arm) {
        var values = valuesOf(row.item, arm.name, measure());
        made.append(values ? el("td", {}, el("a", { href: runOf(row, arm) }, digits(values[0])),
          values[1] === undefined ? "" : el("small", {}, " " + digits(values[1]) + "–" + digits(values[2]))) : el("td", {}, "–"));
      });
      if (floor) made.append(el("td", {}, row.item.floor_us === undefined ? "–" : digits(row.item.floor_us)));
      body.append(made);
    });
    return el("div", { class: "md-typeset__scrollwrap", tabindex: "0", role: "region", "aria-label": "The figures of the chart" },
      el("div", { class: "md-typeset__table" }, el("table", {}, el("thead", {}, head), body)));
  }

  function title() {
    return MEASURES[measure()] + " over " + chosen.over + " on " + chosen.machine + ": " + line.length + " sizes of " + visible().length
      + " implementations. Arrow keys read the points, Enter opens a run, plus and minus zoom, 0 shows all.";
  }

  /* Everything; the chooser of that name keeps the focus. */
  function draw(focus) {
    if (plot) plot.destroy();
    at = null;
    drawnArms = arms.filter(function (arm) {
      return line.some(function (row) { return valuesOf(row.item, arm.name, measure()); });
    });
    place = el("div", { class: "kb-uplot", tabindex: "0", role: "application", "aria-label": title() });
    place.addEventListener("keydown", key);
    told = el("div", { class: "kb-told" }, el("p", {}, "Point at the chart, or move to it by Tab and use the arrow keys."));
    said = el("output", { class: "kb-said", "aria-live": "polite" });
    mount.textContent = "";
    legend = keys();
    figures = list();
    mount.append(form(), legend, place, tools(), told, said, figures);
    plot = new window.uPlot(options(), columns(), place);
    plot.over.addEventListener("click", click);
    write();
    var choice = document.getElementById("kb-chart-" + focus);
    if (choice) choice.focus();
  }

  window.kbtoolMeasured = function (told) {
    data = told;
    fields = told.fields[told.kernel];
    every = [];
    told.results.forEach(function (set) {
      set.cases.forEach(function (item) { if (item.current) every.push({ set: set, item: item }); });
    });
  };

  var style = el("link", { rel: "stylesheet", href: home + "assets/vendor/uplot.css" });
  document.head.append(style);
  Promise.all([load(home + "assets/vendor/uplot.js"), load(mount.dataset.measured)]).then(function () {
    read();
    draw();
    window.kbChart = { plot: function () { return plot; }, line: function () { return line; }, chosen: function () { return chosen; } };
    window.addEventListener("hashchange", function () {
      if (location.hash.indexOf("=") >= 0) { read(); draw(); }
    });
    window.addEventListener("resize", function () { plot.setSize({ width: place.clientWidth, height: plot.height }); });
    new MutationObserver(function () { draw(); }).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
  }, function (error) {
    mount.prepend(el("p", {}, "The chart cannot move because " + error.message + "."));
  });
})();
