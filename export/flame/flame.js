// Zooms and searches. Frames carry where they begin and how heavy they are, in
// nanoseconds (data-x, data-w), and how deep they lie (data-d).
(function () {
  "use strict";
  var svg = document.documentElement;
  var num = function (e, name) { return Number(e.getAttribute("data-" + name)); };
  var total = num(svg, "total"), margin = num(svg, "margin"), charW = num(svg, "char");
  var inner = num(svg, "width") - 2 * margin;
  var frames = Array.prototype.map.call(document.querySelectorAll("#frames > g"), function (g) {
    var title = g.querySelector("title").textContent;
    return {
      g: g, title: title, name: title.slice(0, title.lastIndexOf(" (")),
      x: num(g, "x"), w: num(g, "w"), d: num(g, "d"),
      rect: g.querySelector("rect"), text: g.querySelector("text")
    };
  });
  var zoomed = 0, found = "";
  var get = function (id) { return document.getElementById(id); };

  function fit(name, width) {
    var n = Math.floor((width - 6) / charW), chars = Array.from(name);
    if (n < 3) { return ""; }
    return chars.length <= n ? name : chars.slice(0, n - 1).join("") + "…";
  }

  function zoom(i) {
    if (!frames[i]) { return; }
    var to = frames[i], end = to.x + to.w, scale = inner / (to.w || 1);
    zoomed = i;
    frames.forEach(function (f) {
      var parent = f.d < to.d && f.x <= to.x && f.x + f.w >= end;
      var within = f.d >= to.d && f.x >= to.x && f.x + f.w <= end;
      f.g.classList.toggle("gone", !parent && !within);
      f.g.classList.toggle("parent", parent);
      if (!parent && !within) { return; }
      var x = parent ? margin : margin + (f.x - to.x) * scale;
      var w = parent ? inner : f.w * scale;
      f.rect.setAttribute("x", x.toFixed(2));
      f.rect.setAttribute("width", w.toFixed(2));
      f.text.setAttribute("x", (x + 3).toFixed(2));
      f.text.textContent = fit(f.name, w);
    });
    svg.setAttribute("data-zoom", String(i));
    get("reset").classList.toggle("off", i === 0);
  }

  function search(text) {
    found = text;
    var spans = [], words = text.toLowerCase();
    frames.forEach(function (f) {
      var hit = words !== "" && f.d > 0 && f.name.toLowerCase().indexOf(words) >= 0;
      f.g.classList.toggle("hit", hit);
      if (hit) { spans.push([f.x, f.x + f.w]); }
    });
    spans.sort(function (a, b) { return a[0] - b[0]; });
    var sum = 0, upTo = 0;
    spans.forEach(function (s) {
      sum += Math.max(0, s[1] - Math.max(s[0], upTo));
      upTo = Math.max(upTo, s[1]);
    });
    get("matched").textContent = words === "" ? "" :
      "“" + text + "”: " + spans.length + " frames, " + (100 * sum / (total || 1)).toFixed(2) + " %";
    get("search").textContent = words === "" ? "search" : "clear search";
  }

  function remember() {
    var parts = [];
    if (zoomed) { parts.push("zoom=" + zoomed); }
    if (found) { parts.push("search=" + encodeURIComponent(found)); }
    try { history.replaceState(null, "", "#" + parts.join("&")); } catch (e) { /* some pages may not */ }
  }

  function recall() {
    var want = { zoom: "0", search: "" };
    location.hash.slice(1).split("&").forEach(function (part) {
      var at = part.indexOf("=");
      if (at > 0) { want[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); }
    });
    zoom(parseInt(want.zoom, 10) || 0);
    search(want.search);
  }

  get("frames").addEventListener("click", function (e) {
    var g = e.target.closest("g.f");
    if (g) { zoom(Number(g.id.slice(1))); remember(); }
  });
  get("frames").addEventListener("mouseover", function (e) {
    var g = e.target.closest("g.f");
    if (g) { get("details").textContent = g.querySelector("title").textContent; }
  });
  get("frames").addEventListener("mouseout", function () { get("details").textContent = " "; });
  get("reset").addEventListener("click", function () { zoom(0); remember(); });
  get("search").addEventListener("click", function () {
    search(found ? "" : prompt("Find frames whose name has:", "") || "");
    remember();
  });
  window.addEventListener("keydown", function (e) {
    if (e.key === "Escape") { zoom(0); search(""); remember(); }
    if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); get("search").dispatchEvent(new Event("click")); }
  });
  window.addEventListener("hashchange", recall);
  recall();
}());
