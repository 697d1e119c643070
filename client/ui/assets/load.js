/* A file of the page that does not come is told of, as nothing else of the page would show: a browser breaks off what it loads
   when the machine's network changes. */
(function() {
"use strict";
var isTold = false;
function tell() {
  var told = document.createElement("div");
  if (isTold) return;
  isTold = true;
  told.className = "banner";
  told.setAttribute("role", "alert");
  told.setAttribute("data-kind", "bad");
  told.textContent = "A part of this page could not be loaded. Please reload it.";
  document.getElementById("view").before(told);
}
addEventListener("error", function(event) {
  if (event.target.tagName !== "SCRIPT" && event.target.rel !== "stylesheet") return;
  if (document.readyState === "loading")
    addEventListener("DOMContentLoaded", tell);
  else
    tell();
}, true);
})();
