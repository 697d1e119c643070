/* Before the first paint, so that a dark page never flashes white. */
(function() {
"use strict";
var chosen = null;
try {
  chosen = localStorage.getItem("weir.theme");
} catch (none) { /* storage may be forbidden */
}
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
