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
document.querySelector(".md-search__options").ariaLabel = "Buttons of the search";

// On narrow pages a button opens the navigation: also by keyboard.
const menu = document.querySelector(".md-header__button[for=__drawer]");
const drawer = document.getElementById("__drawer");
Object.assign(menu, {tabIndex: 0, role: "button", ariaLabel: "Navigation", ariaExpanded: "false"});
drawer.addEventListener("change", () => { menu.ariaExpanded = String(drawer.checked); });
menu.addEventListener("keydown", (event) => {
  if (event.key !== " ") return;  // on Enter, Material clicks the label
  event.preventDefault();
  menu.click();
});

// Material's shortcuts are single letters, which dictated words would trigger.
addEventListener("keydown", (event) => {
  const modified = event.ctrlKey || event.metaKey || event.altKey;
  const typed = event.target.matches("input, textarea, select");
  if (/^[a-z.,/]$/i.test(event.key) && !modified && !typed) event.stopPropagation();
}, true);

mend();
addEventListener("load", mend);
addEventListener("resize", mend);
new MutationObserver(mend).observe(document.querySelector(".md-content"), {
  childList: true, subtree: true,
});
