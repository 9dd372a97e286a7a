/* On a narrow screen a table of words becomes a block a row: each cell is told its column's name,
   which pages.css shows. Without this script such a table scrolls sideways. */
(function () {
  "use strict";

  function label(table) {
    var names = Array.from(table.tHead.rows[0].cells, function (cell) {
      return cell.textContent.trim();
    });
    Array.from(table.tBodies[0].rows).forEach(function (row) {
      Array.from(row.cells).forEach(function (cell, at) {
        if (cell.textContent.trim() === "–") cell.dataset.absent = "";
        else if (at > 0 && names[at]) cell.dataset.label = names[at];
      });
    });
    table.dataset.labelled = "";
  }

  function labelAll() {
    document.querySelectorAll(".kb-stack table:not([data-labelled])").forEach(function (table) {
      if (table.tHead && table.tBodies.length) label(table);
    });
  }

  var narrow = window.matchMedia("(max-width: 44.984375em)");
  if (narrow.matches) labelAll();
  narrow.addEventListener("change", function (event) { if (event.matches) labelAll(); });
})();

/* A section that has become a page of its own is linked with the anchors that it had. Who comes with
   an address from before is led there; a state of tables, which has an =, is no anchor. */
(function () {
  "use strict";

  function leadOn() {
    var anchor = decodeURIComponent(location.hash.slice(1));
    if (!anchor || anchor.indexOf("=") >= 0 || document.getElementById(anchor)) return;
    [anchor, anchor.split(/[.-]/)[0]].some(function (name) {
      var now = document.querySelector('[data-kb-had~="' + CSS.escape(name) + '"]');
      if (now) location.replace(now.href + location.hash);
      return now;
    });
  }

  leadOn();
  window.addEventListener("hashchange", leadOn);
})();
