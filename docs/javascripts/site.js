// What Material leaves out for keyboards and screen readers.
"use strict";
const mend = () => {
  // A table that is wider than the page scrolls: also by keyboard.
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
  // The buttons of a block of code are not a landmark.
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) buttons.role = "none";
};
document.querySelector(".md-search").ariaLabel = "Search";
mend();
addEventListener("load", mend);
addEventListener("resize", mend);
new MutationObserver(mend).observe(document.querySelector(".md-content"), {
  childList: true, subtree: true,
});
