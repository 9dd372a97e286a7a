/* What the theme and our scripts make in the browser, told to a screen reader and a keyboard. */
"use strict";
(() => {
  const tend = () => {
    // Landmarks without a name: a button to copy is no landmark at all.
    for (const nav of document.querySelectorAll(".md-code__nav:not([role])"))
      nav.setAttribute("role", "none");
    // What scrolls sideways can be reached, and so scrolled, without a mouse.
    for (const code of document.querySelectorAll("pre > code:not([tabindex])"))
      if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  };
  let asked = 0;
  const soon = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(tend);
  };
  const article = document.querySelector("article");
  if (article) new MutationObserver(soon).observe(article, { childList: true, subtree: true });
  addEventListener("resize", soon);
  tend();
})();
