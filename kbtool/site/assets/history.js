/* The history of a kernel: times of one case by commit; plot.js draws it. What is chosen is in the
   address: #on=MACHINE&set=CASE SET&case=…&measure=…&hide=ARM,ARM. Without scripts the page has a
   drawing and its figures instead. */
(function () {
  "use strict";

  var mount = document.getElementById("kb-history");
  if (!mount || !window.kbPlot) return;

  var el = window.kbTables.el, chooser = window.kbMeasured.chooser, labelled = window.kbMeasured.labelled;
  var home = mount.dataset.home, arms = JSON.parse(mount.dataset.arms).map(function (one) {
    return { name: one[0], tone: one[1], shape: one[2], face: one[3] };
  });
  var MEASURES = { between: "µs between plain kernels", chain: "µs in a chain of its own calls" };
  var COLORS = { slower: "--kb-bad", faster: "--kb-good", "break": "--md-default-fg-color--light" };
  /* What is chosen, from the widest on: name → title, and how a course is called in it. */
  var FIELDS = [
    ["machine", "Machine", function (one) { return one.machine; }],
    ["set", "Case set", function (one) { return one.title; }],
    ["case", "Case", function (one) { return one["case"]; }],
    ["metric", "Measure", function (one) { return MEASURES[one.metric]; }]
  ];
  var ROOM = 26;
  var runs, courses, course, chosen = {}, redraw;

  window.kbtoolHistory = function (told) {
    runs = told.runs.map(function (one) { return { id: one[0], page: home + one[1] }; });
    courses = told.courses;
  };

  function read() {
    var state = window.kbTables.state();
    var first = courses[Number(mount.dataset.start)];
    chosen = { machine: state.get("on") || first.machine, set: state.get("set"), "case": state.get("case") };
    if (chosen.set === null) chosen.set = first.set;
    chosen.metric = state.get("measure") || first.metric;
    chosen.hidden = (state.get("hide") || "").split(",").filter(Boolean);
    settle(first);
  }

  /* The course that has most of what is chosen, the machine first; of those the longest. */
  function settle(first) {
    function fits(one) {
      return FIELDS.map(function (field) { return one[field[0]] === chosen[field[0]]; }).concat(one === first, one.points.length);
    }
    course = courses.slice().sort(function (x, y) {
      var a = fits(x), b = fits(y), at = a.findIndex(function (value, each) { return value !== b[each]; });
      return at < 0 ? 0 : b[at] - a[at];
    })[0];
    FIELDS.forEach(function (field) { chosen[field[0]] = course[field[0]]; });
  }

  function write() {
    window.kbTables.setState({
      on: chosen.machine, set: chosen.set, "case": chosen["case"],
      measure: chosen.metric === "between" ? "" : chosen.metric, hide: chosen.hidden.join(",")
    });
  }

  /* A chooser for each field in which the courses that share the wider ones differ. */
  function form() {
    var made = el("form", { class: "kb-asked" }), left = courses;
    made.addEventListener("submit", function (event) { event.preventDefault(); });
    FIELDS.forEach(function (field) {
      var name = field[0], seen = {};
      left.forEach(function (one) { seen[one[name]] = field[2](one); });
      left = left.filter(function (one) { return one[name] === course[name]; });
      var values = Object.keys(seen).map(function (value) { return [value, seen[value]]; });
      if (values.length < 2) return;
      var select = chooser(values, course[name], function (value) {
        chosen[name] = value;
        settle();
        redraw("kb-history-" + name);
      });
      select.id = "kb-history-" + name;
      var label = labelled(field[1], "", [select]);
      if (name === "case") label.className = "kb-wide";
      made.append(label);
    });
    return made;
  }

  /* The library's own arm stands first. */
  function subjectOf(point) { return Object.keys(point.arms)[0]; }

  /* What a commit changed, and the page that compares it with the one before. */
  function changeOf(one) {
    if (!one.change) return "–";
    function side(places) { return places.map(function (place) { return runs[place].id; }).join("+") + "/" + subjectOf(one); }
    var state = { a: side(one.before), b: side(one.runs), set: course.set, q: course["case"] };
    return el("a", { href: home + "compare.html#" + new URLSearchParams(state) }, one.change);
  }

  function pointOf(one, number) {
    var pages = {}, page = runs[one.run].page;
    Object.keys(one.arms).forEach(function (name) { pages[name] = page; });
    return {
      x: number, name: one.commit, said: "commit " + one.commit, title: "Commit " + one.commit + " of " + one.day,
      values: one.arms, runs: pages, more: [one.timed > 1 ? one.timed + " runs" : "", one.change].filter(Boolean).join("; "),
      head: el("a", { href: page }, one.commit), cells: [one.day, changeOf(one)]
    };
  }

  /* The band of our line: where another run of the same code may lie. */
  function band(u, ctx, ratio, color) {
    var tone = arms.find(function (one) { return one.name === subjectOf(course.points[0]); });
    if (!tone || chosen.hidden.indexOf(tone.name) >= 0) return;
    ctx.fillStyle = color("--kb-series-" + tone.tone);
    ctx.globalAlpha = 0.18;
    var ends = course.points.map(function (one, x) {
      var us = one.arms[subjectOf(one)][0];
      return one.margin ? { x: x, low: us * Math.exp(-one.margin), high: us * Math.exp(one.margin) } : null;
    });
    function piece(one, x, next, until) {
      ctx.beginPath();
      [[x, one.low], [until, next.low], [until, next.high], [x, one.high]].forEach(function (corner, at) {
        ctx[at ? "lineTo" : "moveTo"](u.valToPos(corner[0], "x", true), u.valToPos(corner[1], "y", true));
      });
      ctx.fill();
    }
    ends.forEach(function (one, x) {
      if (!one) return;
      var next = ends[x + 1];
      if (!x || course.points[x].tone === "break" || !ends[x - 1]) piece(one, x - 0.1, one, x);
      if (next && course.points[x + 1].tone !== "break") piece(one, x, next, x + 1);
      else piece(one, x, one, x + 0.1);
    });
    ctx.globalAlpha = 1;
  }

  /* A line down to a commit that changed the time, with by how much; a dotted one where other conditions begin. */
  function changes(u, ctx, ratio, color) {
    course.points.forEach(function (one, x) {
      if (!one.tone) return;
      var isBreak = one.tone === "break", across = u.valToPos(isBreak ? x - 0.5 : x, "x", true);
      ctx.strokeStyle = color(COLORS[one.tone]);
      ctx.lineWidth = (isBreak ? 1 : 2) * ratio;
      ctx.setLineDash(isBreak ? [2 * ratio, 4 * ratio] : []);
      ctx.beginPath();
      ctx.moveTo(across, u.bbox.top);
      ctx.lineTo(across, isBreak ? u.bbox.top + u.bbox.height : u.valToPos(one.arms[subjectOf(one)][0], "y", true) - 8 * ratio);
      ctx.stroke();
    });
    ctx.setLineDash([]);
  }

  /* By how much: in the room above the chart, beyond what it is clipped to. */
  function labels(u, ctx, ratio, color) {
    ctx.font = "bold " + 12 * ratio + "px sans-serif";
    ctx.textAlign = "center";
    course.points.forEach(function (one, x) {
      if (one.tone !== "slower" && one.tone !== "faster") return;
      var percent = (one.ratio - 1) * 100, place = u.valToPos(x, "x", true);
      if (place < u.bbox.left || place > u.bbox.left + u.bbox.width) return;
      ctx.fillStyle = color(COLORS[one.tone]);
      ctx.fillText((percent > 0 ? "+" : "−") + Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0) + " %", place, u.bbox.top - 6 * ratio);
    });
  }

  function breaks() {
    return course.points.map(function (one, x) { return one.tone === "break" ? x : -1; }).filter(function (x) { return x > 0; });
  }

  var LEGEND = "The band: where another run of the same code may lie, 95 of 100; for a case that no commit timed twice, by a spread that is assumed."
    + " A line with a percentage: so much more or less time than at the commit before, by the rule of kbtool compare."
    + " A dotted line: other conditions begin, and nothing is ranked across it.";

  function draw() {
    var points = course.points.map(pointOf), how = MEASURES[course.metric];
    return window.kbPlot(mount, {
      points: points, hidden: chosen.hidden, changed: write, form: form(), first: "Commit", heads: ["Day", "Since the one before"],
      arms: arms.filter(function (arm) { return points.some(function (one) { return one.values[arm.name]; }); }),
      under: band, over: changes, labels: labels, head: ROOM, breaks: breaks(), note: LEGEND,
      x: { label: "commits, in the order in which they were first timed", places: true }, y: { label: how },
      title: how + " by commit of " + course.title + ", " + course["case"] + " on " + course.machine + ", " + points.length + " commits"
    });
  }

  redraw = window.kbPlotted({ mount: mount, scripts: [mount.dataset.history], read: read, write: write, draw: draw });
})();
