// Runs before the first paint, so that a chosen theme does not flash in.
(() => {
  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try {
    theme = localStorage.getItem("ftrl.theme") ?? "auto";
  } catch {
    // Storage may be forbidden: the system's theme is fine.
  }
  const show = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
    document.dispatchEvent(new Event("themechange"));
  };
  const next = () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try {
      localStorage.setItem("ftrl.theme", theme);
    } catch {
      // It lasts as long as the page.
    }
    show();
  };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
})();
