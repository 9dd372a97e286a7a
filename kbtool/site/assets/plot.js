/* A chart that moves: lines of implementations, drawn by uPlot, which pointer, touch and keyboard
   read, with its legend and its figures. charts.js and history.js say what is drawn. */
(function () {
  "use strict";

  if (!window.kbTables) return;
  var el = window.kbTables.el, digits = window.kbTables.digits, FLOOR = "At the measured ceilings";

  function color(name) { return getComputedStyle(document.body).getPropertyValue(name).trim(); }

  function tone(arm) { return color("--kb-series-" + arm.tone); }

  function round(value) {
    if (value >= 1e3 && value < 1e5 && value % 1 === 0) return value.toLocaleString("en");
    var unit = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(function (one) { return value >= one[0]; });
    return unit ? Number((value / unit[0]).toPrecision(3)) + unit[1] : String(Number(value.toPrecision(3)));
  }

  function spread(values) {
    var range = values[1] === undefined ? "" : " (" + digits(values[1]) + "–" + digits(values[2]) + ")";
    return digits(values[0]) + range;
  }

  function mark(arm) {
    var shape = '<svg viewBox="-7 -7 14 14" width="14" height="14" aria-hidden="true"><g class="kb-series-' + arm.tone
      + '"><path class="kb-mark' + (arm.face ? "" : " kb-open") + '" d="M0,0' + arm.shape + '"/></g></svg>';
    var made = el("span", { class: "kb-plot kb-key" });
    made.innerHTML = shape; // from the page's own data: numbers and a path
    return made;
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

  /* The two kinds of horizontal axis: sizes, whose scale is logarithmic, and places with names. */
  var SIZES = {
    scale: { time: false, distr: 3, log: 2, range: near }, splits: splits([1], 2), to: Math.log, from: Math.exp,
    name: function (points, value) { return round(value); }
  };
  var PLACES = {
    scale: { time: false, range: function (u, low, high) { return [low - 0.5, high + 0.5]; } },
    splits: function (u, number, low, high) {
      var found = [], step = Math.ceil((high - low) / (u.width / 75));
      for (var place = Math.ceil(low); place <= high; place += step) found.push(place);
      return found;
    },
    to: function (value) { return value; }, from: function (value) { return value; },
    name: function (points, value) { return points[value] ? points[value].name : ""; }
  };

  /* Draws a chart into an element and returns its uPlot.

     chart.points: {x, name, title, head, values, runs, floor, cells} each: the place on the axis, what
       it is called there and in the readout, the first cell of its row, arm → [value, low, high],
       arm → address of its run, the least time, and what its row says beside.
     chart.arms: {name, tone, shape, face} each, as the drawings that need no script have them.
     chart.x, chart.y: {label, places}, {label, most}: the axes. Places are names, not sizes; most says
       that more is better.
     chart.hidden: the names of arms that are not drawn; chart.changed is called when they change.
     chart.form: what stands above. chart.first, chart.heads: the heads of the first cell and of those
       beside. chart.title: what it is, for those who do not see it. chart.under and chart.over draw below
       the lines and above them, chart.labels outside of what these are clipped to; they are given uPlot, the canvas, its pixels per point, and what finds a
       colour by name. chart.head is the room above, chart.note what explains it. chart.breaks: before which points all lines end. */
  window.kbPlot = function (mount, chart) {
    var points = chart.points, arms = chart.arms, across = chart.x.places ? PLACES : SIZES;
    var at = null, on = 0, plot, place, told, said;
    var floor = points.some(function (one) { return one.floor !== undefined; });

    function visible() {
      return arms.filter(function (arm) { return chart.hidden.indexOf(arm.name) < 0; });
    }

    function columns() {
      var made = [points.map(function (one) { return one.x; })];
      arms.forEach(function (arm) {
        made.push(points.map(function (one) { return one.values[arm.name] ? one.values[arm.name][0] : null; }));
      });
      made.push(points.map(function (one) { return one.floor === undefined ? null : one.floor; }));
      return made;
    }

    /* Calls a function that draws, if there is one; its canvas ends at the axes unless it is free. */
    function drawing(draw, isFree) {
      return draw ? [function (u) {
        u.ctx.save();
        if (!isFree) {
          u.ctx.beginPath();
          u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
          u.ctx.clip();
        }
        draw(u, u.ctx, window.uPlot.pxRatio, color);
        u.ctx.restore();
      }] : [];
    }

    /* The marks and the bars of the points: those of the drawings that need no script. */
    function marks(u, ctx, ratio) {
      ctx.setLineDash([]); // that of the least time would stay
      arms.forEach(function (arm, number) {
        if (!u.series[number + 1].show) return;
        points.forEach(function (one) {
          var values = one.values[arm.name];
          if (!values) return;
          var x = u.valToPos(one.x, "x", true), y = u.valToPos(values[0], "y", true);
          ctx.strokeStyle = ctx.fillStyle = tone(arm);
          ctx.lineWidth = ratio;
          if (values[1] !== undefined) {
            ctx.beginPath();
            ctx.moveTo(x, u.valToPos(values[1], "y", true));
            ctx.lineTo(x, u.valToPos(values[2], "y", true));
            ctx.stroke();
          }
          ctx.save();
          ctx.translate(x, y);
          ctx.scale(ratio, ratio);
          var shape = new Path2D("M0,0" + arm.shape);
          if (arm.face) ctx.fill(shape);
          else {
            ctx.lineWidth = 2;
            ctx.stroke(shape);
          }
          ctx.restore();
        });
      });
    }

    /* Where the line of an arm is interrupted: from its last point before a break to the next. */
    function gaps(u, number) {
      var found = [], data = u.data[number];
      (chart.breaks || []).forEach(function (place) {
        var from = place - 1, to = place;
        while (from >= 0 && data[from] === null) from -= 1;
        while (to < data.length && data[to] === null) to += 1;
        if (from >= 0 && to < data.length) found.push([from, to].map(function (each) { return u.valToPos(u.data[0][each], "x", true); }));
      });
      return found.filter(function (gap, each) { return !each || gap[0] !== found[each - 1][0]; });
    }

    function axis(label, values) {
      var ink = color("--md-default-fg-color"), grid = color("--md-default-fg-color--lightest");
      return {
        label: label, stroke: ink, font: "12px sans-serif", labelFont: "12px sans-serif", labelSize: 18, size: 46,
        grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, values: values, filter: function (u, all) { return all; }
      };
    }

    function options() {
      return {
        width: place.clientWidth, height: place.clientWidth < 500 ? 300 : 380, legend: { show: false }, padding: [chart.head || 10, 12, 0, 0],
        scales: { x: across.scale, y: { distr: 3, log: 10, range: near } },
        cursor: { points: { show: false }, drag: { x: true, y: false, dist: 5 } },
        series: [{}].concat(arms.map(function (arm) {
          return { label: arm.name, stroke: function () { return tone(arm); }, width: 1.5, spanGaps: false, gaps: gaps,
            points: { show: false }, show: chart.hidden.indexOf(arm.name) < 0 };
        }), [{ label: FLOOR, stroke: color("--kb-bad"), width: 1.5, dash: [6, 3], spanGaps: true, points: { show: false } }]),
        axes: [
          Object.assign(axis(chart.x.label, function (u, values) {
            return values.map(function (value) { return across.name(points, value); });
          }), { splits: across.splits }),
          Object.assign(axis(chart.y.label, function (u, values) { return values.map(round); }), { splits: splits([1, 2, 5], 10) })
        ],
        hooks: {
          drawClear: drawing(chart.under), draw: drawing(marks).concat(drawing(chart.over), drawing(chart.labels, true)),
          setCursor: [function (u) { if (u.cursor.idx !== at && u.cursor.left >= 0) point(u.cursor.idx); }]
        }
      };
    }

    /* Tell the values at one place; the arm that the keyboard is on comes first. */
    function point(number) {
      at = number;
      told.textContent = "";
      if (number === null || number === undefined) return;
      var one = points[number], list = el("ul", { class: "kb-readout" });
      var seen = visible().filter(function (arm) { return one.values[arm.name]; });
      seen.sort(function (x, y) { return (one.values[x.name][0] - one.values[y.name][0]) * (chart.y.most ? -1 : 1); });
      on = Math.min(on, seen.length - 1);
      seen.forEach(function (arm, each) {
        list.append(el("li", each === on ? { class: "kb-on" } : {}, mark(arm),
          el("a", { href: one.runs[arm.name] }, arm.name), " " + spread(one.values[arm.name])));
      });
      told.append(el("p", {}, el("b", {}, one.title), ", " + chart.y.label
        + (one.floor === undefined ? "" : "; " + FLOOR.toLowerCase() + " " + digits(one.floor)) + (one.more ? "; " + one.more : "")), list);
      if (seen[on]) said.textContent = one.said + ": " + seen[on].name + " " + spread(one.values[seen[on].name]);
      return seen;
    }

    function move(number) {
      plot.setCursor({ left: plot.valToPos(points[number].x, "x"), top: plot.bbox.height / 2 / window.uPlot.pxRatio }, false);
      point(number);
    }

    function zoom(factor) {
      var low = across.to(plot.scales.x.min), high = across.to(plot.scales.x.max), middle = (low + high) / 2;
      if (at !== null && points[at]) middle = across.to(points[at].x);
      // No further out than all; the scale adds its margins.
      plot.setScale("x", {
        min: Math.max(points[0].x, across.from(middle + (low - middle) * factor)),
        max: Math.min(points[points.length - 1].x, across.from(middle + (high - middle) * factor))
      });
    }

    function whole() { plot.setData(columns(), true); }

    function key(event) {
      var steps = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length };
      if (event.key in steps) {
        var from = at === null ? (steps[event.key] > 0 ? -1 : points.length) : at;
        move(Math.max(0, Math.min(points.length - 1, from + steps[event.key])));
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        if (at === null) move(0);
        on = Math.max(0, on + (event.key === "ArrowUp" ? -1 : 1));
        point(at);
      } else if (event.key === "Enter" && at !== null) {
        var seen = point(at);
        if (seen[on]) location.href = points[at].runs[seen[on].name];
      } else if (event.key === "+") zoom(0.5);
      else if (event.key === "-") zoom(2);
      else if (event.key === "0" || event.key === "Escape") whole();
      else return;
      event.preventDefault();
    }

    /* The point that was clicked, if one was: not where a part was drawn out to be enlarged. */
    function click(event) {
      if (event.pointerType === "touch" || at === null || at === undefined) return;
      var box = plot.over.getBoundingClientRect(), best = null, one = points[at];
      visible().forEach(function (arm) {
        var values = one.values[arm.name];
        if (!values) return;
        var x = plot.valToPos(one.x, "x") + box.left - event.clientX;
        var far = Math.hypot(x, plot.valToPos(values[0], "y") + box.top - event.clientY);
        if (far < 12 && (!best || far < best.far)) best = { far: far, arm: arm };
      });
      if (best) location.href = one.runs[best.arm.name];
    }

    function legend() {
      var made = el("div", { class: "kb-legend", role: "group", "aria-label": "Implementations shown" });
      arms.forEach(function (arm, number) {
        var shown = chart.hidden.indexOf(arm.name) < 0;
        var button = el("button", { type: "button", class: "kb-button", "aria-pressed": String(shown) }, mark(arm), " " + arm.name);
        button.addEventListener("click", function () {
          var hidden = chart.hidden.indexOf(arm.name);
          if (hidden < 0) chart.hidden.push(arm.name);
          else chart.hidden.splice(hidden, 1);
          button.setAttribute("aria-pressed", String(hidden >= 0));
          plot.setSeries(number + 1, { show: hidden >= 0 });
          point(at);
          chart.changed();
        });
        made.append(button);
      });
      if (floor) made.append(el("span", { class: "kb-floor" }, FLOOR.toLowerCase()));
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

    /* The figures of the chart, each with a link to its run. */
    function figures() {
      var head = el("tr"), body = el("tbody"), names = arms.map(function (arm) { return arm.name; });
      [chart.first].concat(chart.heads || [], names, floor ? [FLOOR] : []).forEach(function (name) { head.append(el("th", {}, name)); });
      points.forEach(function (one) {
        var made = el("tr", {}, el("th", { scope: "row" }, one.head));
        (one.cells || []).forEach(function (cell) { made.append(el("td", {}, cell)); });
        arms.forEach(function (arm) {
          var values = one.values[arm.name];
          made.append(values ? el("td", {}, el("a", { href: one.runs[arm.name] }, digits(values[0])),
            values[1] === undefined ? "" : el("small", {}, " " + digits(values[1]) + "–" + digits(values[2]))) : el("td", {}, "–"));
        });
        if (floor) made.append(el("td", {}, one.floor === undefined ? "–" : digits(one.floor)));
        body.append(made);
      });
      return el("div", { class: "md-typeset__scrollwrap", tabindex: "0", role: "region", "aria-label": "The figures of the chart" },
        el("div", { class: "md-typeset__table" }, el("table", {}, el("thead", {}, head), body)));
    }

    place = el("div", { class: "kb-uplot", tabindex: "0", role: "application", "aria-label": chart.title + ": " + visible().length
      + " implementations. Arrow keys read the points, Enter opens a run, plus and minus zoom, 0 shows all." });
    place.addEventListener("keydown", key);
    told = el("div", { class: "kb-told" }, el("p", {}, "Point at the chart, or move to it by Tab and use the arrow keys."));
    said = el("output", { class: "kb-said", "aria-live": "polite" });
    mount.textContent = "";
    mount.append(chart.form, legend(), place, tools());
    if (chart.note) mount.append(el("p", {}, el("small", {}, chart.note)));
    mount.append(told, said, figures());
    plot = new window.uPlot(options(), columns(), place);
    plot.over.addEventListener("click", click);
    return plot;
  };

  /* Draws the page's chart as soon as uPlot and its data are there, and again when the address, the
     width or the palette changes.

     page.mount: the element. page.scripts: what to load. page.read takes the choice from the address,
     page.write puts it there; page.draw draws and returns the uPlot.
     Returns what to call after a choice, with the id of its chooser. */
  window.kbPlotted = function (page) {
    var home = page.mount.dataset.home, plot = null, load = window.kbTables.load;
    document.head.append(el("link", { rel: "stylesheet", href: home + "assets/vendor/uplot.css" }));
    function draw() {
      if (plot) plot.destroy();
      plot = page.draw();
    }

    /* After a choice; the chooser of that id was made anew, and keeps the focus. */
    function choose(id) {
      draw();
      page.write(); // not before: until then the address may be an anchor
      var chooser = document.getElementById(id);
      if (chooser) chooser.focus();
    }
    Promise.all([home + "assets/vendor/uplot.js"].concat(page.scripts).map(load)).then(function () {
      page.read();
      draw();
      var anchor = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (anchor) anchor.scrollIntoView(); // what stands above it has another height now
      window.kbChart = { plot: function () { return plot; } };
      window.addEventListener("hashchange", function () {
        if (location.hash.indexOf("=") < 0) return; // an anchor of the page
        page.read();
        draw();
      });
      window.addEventListener("resize", function () {
        plot.setSize({ width: plot.root.parentElement.clientWidth, height: plot.height });
      });
      new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
    }, function (error) {
      page.mount.prepend(el("p", {}, "The chart cannot move because " + error.message + "."));
    });
    return choose;
  };
})();
