(() => {
  document.addEventListener("DOMContentLoaded", () => {
    for (const part of document.querySelectorAll("[data-live]")) {
      const source = new EventSource(part.dataset.live);
      source.addEventListener("live", (event) => {
        const busy = part.contains(document.activeElement) || part.contains(getSelection().anchorNode);
        const selecting = busy && !getSelection().isCollapsed;
        const focus = part.contains(document.activeElement) ? document.activeElement.closest("a, button") : null;
        const link = focus && (focus.getAttribute("href") || "");
        if (selecting) { return; }
        const scrolled = [...part.querySelectorAll("pre")].map((pre) => [pre.scrollTop, pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4]);
        part.innerHTML = event.data;
        [...part.querySelectorAll("pre")].forEach((pre, i) => {
          pre.scrollTop = !scrolled[i] || scrolled[i][1] ? pre.scrollHeight : scrolled[i][0];
        });
        if (link) { part.querySelector(`[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true }); }
      });
      addEventListener("pagehide", () => source.close());
    }
  });
})();
