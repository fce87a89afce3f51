// Zooms the time lines: bars and arrows carry their times in nanoseconds since the begin of
// the outlier (data-from, data-to, data-at). Without this script the page is the same, at
// the first zoom. The address may carry #NUMBER:FROM-TO, an outlier and nanoseconds.
"use strict";
(function () {
  var SVG = "http://www.w3.org/2000/svg", lines = [];
  var num = function (e, name) { return Number(e.getAttribute("data-" + name)); };

  function duration(ns) {
    var units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
    for (var i = 0; i < units.length; i++) {
      if (ns >= units[i][0]) { return String(Number((ns / units[i][0]).toPrecision(5))) + units[i][1]; }
    }
    return Math.round(ns) + "ns";
  }

  // roundStep is the finest of 1, 2, 5, 10 … that fits at most ten times.
  function roundStep(span) {
    var power = Math.pow(10, Math.floor(Math.log10(Math.max(span, 10) / 10)));
    return power * [1, 2, 5, 10].find(function (n) { return span / (power * n) <= 10; });
  }

  function make(parent, name, attributes, text) {
    var e = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (k) { e.setAttribute(k, attributes[k]); });
    if (text !== undefined) { e.textContent = text; }
    parent.appendChild(e);
    return e;
  }

  function Line(figure, number) {
    var self = this;
    this.figure = figure;
    this.number = number;
    this.svg = figure.querySelector("svg");
    this.left = num(figure, "left");
    this.room = num(figure, "room");
    this.whole = Math.max(num(figure, "whole"), 1);
    this.top = num(figure, "top");
    this.bottom = num(figure, "bottom");
    this.from = 0;
    this.to = this.whole;
    this.bars = Array.prototype.map.call(figure.querySelectorAll("rect.bar[data-from]"), function (e) {
      return { e: e, from: num(e, "from"), to: num(e, "to"), y: Number(e.getAttribute("y")), h: Number(e.getAttribute("height")),
        words: e.querySelector("title").textContent.split("\n")[0], named: e.parentNode.getAttribute("class") === "path",
        look: e.getAttribute("class"), fill: e.getAttribute("fill") };
    });
    this.arrows = Array.prototype.map.call(figure.querySelectorAll("g.arrow"), function (e) {
      return { e: e, at: num(e, "at"), x: num(e, "x"), rows: e.getAttribute("data-rows") };
    });
    figure.querySelectorAll("line.grid, .axis").forEach(function (e) { e.remove(); });
    this.axis = document.createElementNS(SVG, "g");
    this.svg.querySelector("g").insertBefore(this.axis, this.svg.querySelector("g.path, g.other"));
    this.shared = make(this.svg.querySelector("g"), "g", {});
    this.words = make(this.svg.querySelector("g"), "g", {});
    figure.querySelectorAll("text.in").forEach(function (e) { e.remove(); });
    var tools = figure.querySelector(".tools");
    tools.hidden = false;
    tools.addEventListener("click", function (ev) {
      var by = ev.target.getAttribute("data-zoom");
      if (by === "0") { self.show(0, self.whole); } else if (by) { self.zoom(Number(by), (self.from + self.to) / 2); }
    });
    this.svg.addEventListener("wheel", function (ev) {
      if (!ev.ctrlKey && !ev.shiftKey) { return; } // the page scrolls
      ev.preventDefault();
      self.zoom(ev.deltaY < 0 ? 0.8 : 1.25, self.time(ev));
    }, { passive: false });
    this.svg.addEventListener("dblclick", function (ev) { self.zoom(0.4, self.time(ev)); });
    this.drag();
  }

  // time is what the pointer points at.
  Line.prototype.time = function (ev) {
    var box = this.svg.getBoundingClientRect(), wide = this.svg.viewBox.baseVal.width;
    var x = ((ev.clientX - box.left) / box.width * wide - this.left) / this.room;
    return this.from + Math.min(Math.max(x, 0), 1) * (this.to - this.from);
  };

  Line.prototype.drag = function () {
    var self = this, at = null, from = 0, moved = false;
    this.svg.addEventListener("pointerdown", function (ev) { at = ev.clientX; from = self.from; moved = false; });
    window.addEventListener("pointermove", function (ev) {
      if (at === null) { return; }
      var box = self.svg.getBoundingClientRect(), span = self.to - self.from;
      if (Math.abs(ev.clientX - at) > 3) { moved = true; }
      if (!moved || span >= self.whole) { return; }
      var by = (at - ev.clientX) / box.width * self.svg.viewBox.baseVal.width / self.room * span;
      var begin = Math.min(Math.max(from + by, 0), self.whole - span);
      self.show(begin, begin + span);
    });
    window.addEventListener("pointerup", function () { at = null; });
    this.svg.addEventListener("click", function (ev) {
      if (!moved && ev.target.hasAttribute("data-step")) { self.choose(ev.target); }
    });
  };

  Line.prototype.zoom = function (by, around) {
    var span = Math.min(Math.max((this.to - this.from) * by, 10), this.whole);
    var share = (around - this.from) / (this.to - this.from);
    var from = Math.min(Math.max(around - share * span, 0), this.whole - span);
    this.show(from, from + span);
  };

  // show draws what is between two times.
  Line.prototype.show = function (from, to) {
    var self = this, scale = this.room / Math.max(to - from, 1);
    this.from = from;
    this.to = to;
    this.words.replaceChildren();
    this.shared.replaceChildren();
    var columns = new Map();
    this.bars.forEach(function (b) {
      var lo = Math.max(b.from, from), hi = Math.min(b.to, to);
      var x = self.left + (lo - from) * scale, width = Math.max((hi - lo) * scale, 0.6);
      b.e.setAttribute("visibility", hi > lo ? "visible" : "hidden");
      if (hi <= lo) { return; }
      if ((hi - lo) * scale < 1) {
        var key = b.y + " " + Math.floor(x);
        if (!columns.has(key)) { columns.set(key, []); }
        columns.get(key).push({ bar: b, width: (hi - lo) * scale });
      }
      b.e.setAttribute("x", x.toFixed(2));
      b.e.setAttribute("width", width.toFixed(2));
      b.e.setAttribute("rx", Math.min(3, width / 3).toFixed(1));
      if (b.named && b.words.length * 7.5 + 8 < width) {
        make(self.words, "text", { "class": "in", x: (x + width / 2).toFixed(1), y: (b.y + b.h / 2 + 4).toFixed(1) }, b.words);
      }
    });
    columns.forEach(function (list) { if (list.length > 1) { self.share(list); } });
    var before = {};
    this.arrows.forEach(function (a) {
      var x = (a.at - from) * scale, apart = before[a.rows] === undefined || x - before[a.rows] >= 6;
      var seen = a.at >= from && a.at <= to && apart;
      if (seen) { before[a.rows] = x; }
      a.e.setAttribute("visibility", seen ? "visible" : "hidden");
      a.e.setAttribute("transform", "translate(" + (self.left + (a.at - from) * scale - a.x).toFixed(2) + " 0)");
    });
    this.ticks(scale);
    this.figure.querySelector(".shown").textContent = duration(from) + " to " + duration(to);
  };

  // share draws bars that have one pixel together: each has the height that its time asks for.
  Line.prototype.share = function (list) {
    var one = list[0].bar, x = Math.floor(Number(one.e.getAttribute("x"))), sums = new Map(), all = 0;
    list.forEach(function (l) {
      l.bar.e.setAttribute("visibility", "hidden");
      var sum = sums.get(l.bar.look) || { fill: l.bar.fill, width: 0 };
      sum.width += l.width;
      all += l.width;
      sums.set(l.bar.look, sum);
    });
    var y = one.y + one.h, self = this;
    sums.forEach(function (sum, look) {
      var high = one.h * sum.width / Math.max(all, 1);
      y -= high;
      make(self.shared, "rect", { "class": look + " shared", fill: sum.fill, x: x, width: 1, y: y.toFixed(2), height: high.toFixed(2) });
    });
  };

  Line.prototype.ticks = function (scale) {
    var step = roundStep(this.to - this.from);
    this.axis.replaceChildren();
    for (var t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      var x = (this.left + (t - this.from) * scale).toFixed(1);
      make(this.axis, "line", { "class": "grid", x1: x, x2: x, y1: this.top - 4, y2: this.bottom });
      make(this.axis, "text", { "class": "s", "text-anchor": "middle", x: x, y: this.top - 9 }, t === 0 ? "0" : duration(t));
    }
  };

  // choose says what a bar is, and opens its stack.
  Line.prototype.choose = function (bar) {
    document.querySelectorAll(".bar.chosen").forEach(function (e) { e.classList.remove("chosen"); });
    bar.classList.add("chosen");
    this.figure.querySelector(".chosen-text").textContent = bar.querySelector("title").textContent;
    var stack = document.getElementById("stack-" + this.number + "-" + bar.getAttribute("data-step"));
    if (stack) {
      stack.open = true;
      this.figure.querySelector(".chosen-text").textContent += "\n" + stack.querySelector("pre").textContent;
    }
  };

  function goTo() {
    var m = /^#(\d+):(\d+)-(\d+)$/.exec(location.hash);
    lines.forEach(function (l) {
      var here = m && Number(m[1]) === l.number && Number(m[2]) < Math.min(Number(m[3]), l.whole);
      if (here) { l.show(Number(m[2]), Math.min(Number(m[3]), l.whole)); l.figure.scrollIntoView(); } else { l.show(0, l.whole); }
    });
  }

  document.querySelectorAll("figure.line").forEach(function (f) { lines.push(new Line(f, num(f, "number"))); });
  window.addEventListener("hashchange", goTo);
  goTo();
}());
