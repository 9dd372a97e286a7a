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
    ["case", "Case", function (one) { return one["case"]; }]
  ];
  var runs, courses, course, chosen = {}, focus = null, redraw;

  window.kbtoolHistory = function (told) {
    runs = told.runs.map(function (one) { return { id: one[0], page: home + one[1] }; });
    courses = told.courses;
  };

  function read() {
    var state = window.kbTables.state();
    var first = courses[Number(mount.dataset.start)];
    chosen = { machine: state.get("on") || first.machine, set: state.get("set"), "case": state.get("case") };
    if (chosen.set === null) chosen.set = first.set;
    chosen.measure = state.get("measure") || "";
    chosen.hidden = (state.get("hide") || "").split(",").filter(Boolean);
    settle(first);
  }

  /* The course that has most of what is chosen, the machine first; of those the longest. */
  function settle(first) {
    function fits(one) {
      return [one.machine === chosen.machine, one.set === chosen.set, one["case"] === chosen["case"], one === first, one.points.length];
    }
    course = courses.slice().sort(function (x, y) {
      var a = fits(x), b = fits(y), at = a.findIndex(function (value, each) { return value !== b[each]; });
      return at < 0 ? 0 : b[at] - a[at];
    })[0];
    FIELDS.forEach(function (field) { chosen[field[0]] = course[field[0]]; });
  }

  function measure() { return course.metrics.indexOf(chosen.measure) < 0 ? course.metrics[0] : chosen.measure; }

  function write() {
    window.kbTables.setState({
      on: chosen.machine, set: chosen.set, "case": chosen["case"],
      measure: chosen.measure, hide: chosen.hidden.join(",")
    });
  }

  /* A chooser for each field in which the courses that share the wider ones differ. */
  function form() {
    var made = el("form", { class: "kb-asked" }), left = courses;
    made.addEventListener("submit", function (event) { event.preventDefault(); });
    function add(name, title, values, now, change) {
      if (values.length < 2) return;
      var select = chooser(values, now, function (value) {
        change(value);
        focus = name;
        redraw();
      });
      select.id = "kb-history-" + name;
      var label = labelled(title, "", [select]);
      if (name === "case") label.className = "kb-wide";
      made.append(label);
    }
    FIELDS.forEach(function (field) {
      var name = field[0], seen = {};
      left.forEach(function (one) { seen[one[name]] = field[2](one); });
      add(name, field[1], Object.keys(seen).map(function (value) { return [value, seen[value]]; }), course[name], function (value) {
        chosen[name] = value;
        settle();
      });
      left = left.filter(function (one) { return one[name] === course[name]; });
    });
    add("measure", "Measure", course.metrics.map(function (name) { return [name, MEASURES[name]]; }), measure(), function (value) {
      chosen.measure = value;
    });
    return made;
  }

  /* What a commit changed, and the page that compares it with the one before. */
  function changeOf(one) {
    if (!one.change) return "–";
    function side(point) { return runs[point.run].id + "/" + subjectOf(point); }
    var before = course.points[course.points.findIndex(function (point) { return point.run === one.run; }) - 1];
    var state = { a: side(before), b: side(one), set: course.set, q: course["case"] };
    return el("a", { href: home + "compare.html#" + new URLSearchParams(state) }, one.change);
  }

  /* The library's own arm stands first. */
  function subjectOf(point) { return Object.keys(point.arms)[0]; }

  function pointOf(one, number) {
    var values = {}, pages = {}, page = runs[one.run].page;
    Object.keys(one.arms).forEach(function (name) {
      if (!one.arms[name][measure()]) return;
      values[name] = one.arms[name][measure()];
      pages[name] = page;
    });
    return {
      x: number, name: one.commit, said: "commit " + one.commit, title: "Commit " + one.commit + " of " + one.day,
      values: values, runs: pages, more: [one.runs > 1 ? one.runs + " runs" : "", one.change].filter(Boolean).join("; "),
      head: el("a", { href: page }, one.commit), cells: [one.day, changeOf(one)]
    };
  }

  /* The commits that have the measure; what lies between two of them breaks both apart. */
  function shownPoints() {
    var how = measure(), isBroken = false, found = [];
    course.points.forEach(function (one) {
      isBroken = isBroken || one.tone === "break";
      if (!Object.keys(one.arms).some(function (name) { return one.arms[name][how]; })) return;
      found.push(isBroken ? Object.assign({}, one, { tone: "break" }) : one);
      isBroken = false;
    });
    return found;
  }

  /* The band of our line, and a line across where a commit changed it or the conditions did. */
  function under(shown, u, ctx, ratio, color) {
    var how = measure(), subject = subjectOf(course.points[course.points.length - 1]);
    var tone = arms.find(function (one) { return one.name === subject; });
    var points = shown.map(function (one, x) {
      var values = one.arms[subject] && one.arms[subject][how], deviation = one.deviation[how];
      return values && deviation ? { x: x, low: values[0] * Math.exp(-1.96 * deviation), high: values[0] * Math.exp(1.96 * deviation) } : null;
    });
    if (tone && chosen.hidden.indexOf(subject) < 0) {
      ctx.fillStyle = color("--kb-series-" + tone.tone);
      ctx.globalAlpha = 0.18;
      points.forEach(function (one, at) {
        if (!one) return;
        var next = points[at + 1], joined = next && shown[at + 1].tone !== "break";
        band(one, joined ? next : { x: one.x + 0.1, low: one.low, high: one.high });
        if (!at || shown[at].tone === "break") band({ x: one.x - 0.1, low: one.low, high: one.high }, one);
      });
      ctx.globalAlpha = 1;
    }
    function place(x, y) { return [u.valToPos(x, "x", true), u.valToPos(y, "y", true)]; }
    function band(one, next) {
      ctx.beginPath();
      [[one.x, one.low], [next.x, next.low], [next.x, next.high], [one.x, one.high]].forEach(function (corner, at) {
        ctx[at ? "lineTo" : "moveTo"].apply(ctx, place(corner[0], corner[1]));
      });
      ctx.fill();
    }
    ctx.font = 12 * ratio + "px sans-serif";
    ctx.textAlign = "center";
    shown.forEach(function (one, x) {
      if (!x || !one.tone || (one.tone !== "break" && one.metric !== how)) return;
      var across = u.valToPos(one.tone === "break" ? x - 0.5 : x, "x", true);
      ctx.strokeStyle = ctx.fillStyle = color(COLORS[one.tone]);
      ctx.lineWidth = ratio;
      ctx.setLineDash(one.tone === "break" ? [2 * ratio, 4 * ratio] : []);
      ctx.beginPath();
      ctx.moveTo(across, u.bbox.top + (one.tone === "break" ? 0 : 16 * ratio));
      ctx.lineTo(across, u.bbox.top + u.bbox.height);
      ctx.stroke();
      if (one.tone !== "break") {
        var percent = (one.ratio - 1) * 100;
        ctx.fillText((percent > 0 ? "+" : "−") + Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0) + " %", across, u.bbox.top + 12 * ratio);
      }
    });
    ctx.setLineDash([]);
  }

  function draw() {
    var kept = shownPoints(), points = kept.map(pointOf), how = MEASURES[measure()];
    var drawn = window.kbPlot(mount, {
      points: points, hidden: chosen.hidden, changed: write, form: form(), first: "Commit", heads: ["Day", "Since the one before"], under: under.bind(null, kept),
      arms: arms.filter(function (arm) { return points.some(function (one) { return one.values[arm.name]; }); }),
      x: { label: "commits, in the order in which they were first timed", places: true }, y: { label: how },
      title: how + " by commit of " + course.title + ", " + course["case"] + " on " + course.machine + ", " + points.length + " commits"
    });
    if (focus) { // a choice was made: until then the address may be an anchor
      write();
      var choice = document.getElementById("kb-history-" + focus);
      if (choice) choice.focus();
      focus = null;
    }
    return drawn;
  }

  redraw = window.kbPlotted({ mount: mount, scripts: [mount.dataset.history], read: read, draw: draw });
})();
