// Light or dark: the reader's choice, or else the system's. It runs before the page is drawn, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const show = () => {
    root.dataset.theme = kept() || (dark.matches ? "dark" : "light");
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  show();
  dark.addEventListener("change", show);
  // Paper is light; canvases are painted once more in its inks, since no style reaches them.
  window.addEventListener("beforeprint", () => { root.dataset.theme = "light"; document.dispatchEvent(new CustomEvent("themechange")); });
  window.addEventListener("afterprint", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      try { localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { /* private window */ }
      root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      // The page changes at once; charts, which take longer, are drawn anew after that frame.
      requestAnimationFrame(() => setTimeout(() => document.dispatchEvent(new CustomEvent("themechange"))));
    });
    // What scrolls sideways can be reached with the keyboard, as long as it does.
    const reach = new ResizeObserver((entries) => {
      for (const { target } of entries) target.toggleAttribute("tabindex", target.scrollWidth > target.clientWidth);
      for (const { target } of entries) if (target.hasAttribute("tabindex")) target.tabIndex = 0;
    });
    for (const box of document.querySelectorAll(".scroll, pre")) reach.observe(box);
  });
})();
