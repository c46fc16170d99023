// Tests a page in a frame with axe-core, and posts the results to the page around it.
"use strict";
const reachable = "a[href], button, input, select, summary, .scroll, pre";
const isShown = (element) => element.checkVisibility() && !element.disabled;
const isMarked = (element) => {
  element.focus();
  const style = getComputedStyle(element);
  return document.activeElement === element && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
};
addEventListener("load", async () => {
  const result = await axe.run(document, { resultTypes: ["violations"] });
  const elements = [...document.querySelectorAll(reachable)].filter(isShown);
  parent.postMessage({
    page: name,
    rules: result.passes.length + result.violations.length,
    violations: result.violations.map((rule) => ({
      rule: rule.id, impact: rule.impact, elements: rule.nodes.slice(0, 3).map((node) => node.html),
    })),
    unreachable: elements.filter((element) => element.tabIndex < 0).map((element) => element.outerHTML),
    unmarked: elements.filter((element) => !isMarked(element)).map((element) => element.outerHTML.slice(0, 200)),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ground: getComputedStyle(document.body).backgroundColor,
  }, "*");
});
