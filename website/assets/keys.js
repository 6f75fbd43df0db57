/* Code and tables that are wider than their place are reached and scrolled by keys too. */
(() => {
  const reach = () =>
    document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((node) => {
      if (node.scrollWidth > node.clientWidth && node.tabIndex < 0) node.tabIndex = 0;
    });
  const watch = { subtree: true, childList: true, attributes: true, attributeFilter: ["tabindex"] };
  addEventListener("load", () => { reach(); new MutationObserver(reach).observe(document.body, watch); });
  addEventListener("resize", reach);
})();
