/* What the theme and our scripts make in the browser, told to a screen reader and a keyboard. */
"use strict";
(() => {
  const article = document.querySelector("article");
  if (!article) return;

  const scrolls = (box) => box.scrollWidth > box.clientWidth + 1;

  /* The fade that says that there is more to the right (tables.css); what is beside a table in its
     frame is no more. */
  const hint = ({ currentTarget: frame }) => {
    const beside = parseFloat(getComputedStyle(frame.firstElementChild).paddingRight);
    const left = frame.scrollWidth - frame.clientWidth - frame.scrollLeft;
    frame.classList.toggle("kb-more", left > beside + 1);
  };

  /* The frame of a table, a chart or a formula is something to go to only where there is something
     to scroll. */
  const tendFrame = (frame, name) => {
    const wide = scrolls(frame);
    frame.classList.toggle("kb-scrolls", wide);
    frame.classList.toggle("kb-fits", !wide);
    if (wide) {
      frame.tabIndex = 0;
      frame.setAttribute("role", "region");
      frame.setAttribute("aria-label", name);
    } else for (const attribute of ["tabindex", "role", "aria-label"]) frame.removeAttribute(attribute);
    frame.addEventListener("scroll", hint, { passive: true });
    hint({ currentTarget: frame });
  };

  /* Records are in no navigation: the tab of the list that leads to them is the active one. */
  if (!document.querySelector(".md-tabs__item--active")) {
    const folderOf = (link) => new URL(".", link.href).href;
    const root = folderOf(document.querySelector(".md-logo"));
    for (const tab of document.querySelectorAll(".md-tabs__item")) {
      const folder = folderOf(tab.firstElementChild);
      if (folder !== root && location.href.startsWith(folder))
        tab.classList.add("md-tabs__item--active");
    }
  }

  const tend = () => {
    // Landmarks without a name: a button to copy is no landmark at all.
    for (const nav of document.querySelectorAll(".md-code__nav:not([role])"))
      nav.setAttribute("role", "none");
    // What scrolls sideways can be reached, and so scrolled, without a mouse.
    for (const code of document.querySelectorAll("pre > code:not([tabindex])"))
      if (scrolls(code)) code.tabIndex = 0;
    for (const drawn of article.querySelectorAll(".kb-chart, .kb-drawing"))
      tendFrame(drawn, drawn.querySelector("svg").getAttribute("aria-label"));
    for (const formula of article.querySelectorAll(".kb-math")) tendFrame(formula, "Formula");
    let heading = "", tables = 0;
    for (const part of article.querySelectorAll("h1, h2, h3, h4, .md-typeset__scrollwrap"))
      if (part.matches("h1, h2, h3, h4")) heading = part.textContent.replace("¶", "").trim();
      else tendFrame(part, `${heading}, table ${(tables += 1)}`);
  };
  let asked = 0;
  const soon = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(tend);
  };
  new MutationObserver(soon).observe(article, { childList: true, subtree: true });
  new ResizeObserver(soon).observe(article); // the window's width, and what is unfolded
  tend();
})();
