// What the pages share: their data, controls, and drawings as wide as the window is.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const value = (id) => Number(at(id).value);
const show = (id, text) => { at(id).textContent = text; };
const fixed = (x, digits = 3) => x.toFixed(digits);

function made(element, attributes, children) {
  for (const [name, it] of Object.entries(attributes)) element.setAttribute(name, it);
  element.append(...children);
  return element;
}

const html = (tag, attributes = {}, ...children) =>
  made(document.createElement(tag), attributes, children);

const node = (tag, attributes = {}, ...children) =>
  made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const words = (x, y, text, more = {}) => node("text", { x, y, ...more }, text);

const path = (points, kind) =>
  node("path", { d: "M" + points.map((it) => it.join(" ")).join("L"), class: `line ${kind}` });

// How much larger letters are than on a small screen: drawings grow with them.
const unit = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

// An SVG in the element of this id; paint: width -> its children. height: a number, or
// width -> a number. figure: what has its caption. Returns what redraws.
function drawing(id, height, paint, figure = at(id).parentElement) {
  const host = at(id), caption = figure.querySelector("figcaption");
  const named = { role: "img", "aria-labelledby": caption.id };
  const svg = host.appendChild(node("svg", named));
  const draw = () => {
    const width = Math.max(host.clientWidth / unit(), 200);
    const high = typeof height === "function" ? height(width) : height;
    svg.setAttribute("viewBox", `0 0 ${width} ${high}`);
    svg.setAttribute("height", high * unit());
    svg.replaceChildren(...paint(width));
  };
  new ResizeObserver(draw).observe(host);
  return draw;
}

// The least of some round steps that divides a length into no more than `most` parts.
function round(length, most) {
  const each = [0.01, 0.1, 1, 10, 100, 1000].flatMap((it) => [it, 2 * it, 5 * it]);
  return each.find((it) => length / it <= most) ?? 10000;
}

// Lines across from `left` to `right` at round values up to `top`, with their numbers;
// y: value -> its height. name: what is counted, above.
function scale(top, y, left, right, name) {
  const every = round(top, 6), marks = [words(0, 12, name, { class: "soft" })];
  for (let i = 0; i * every <= top; i++) {
    const it = i * every, digits = every < 0.1 ? 2 : every < 1 ? 1 : 0;
    marks.push(path([[left, y(it)], [right, y(it)]], "soft"));
    marks.push(words(left - 6, y(it) + 5, fixed(it, digits), { "text-anchor": "end" }));
  }
  return marks;
}

function choices(id, names) {
  at(id).replaceChildren(...names.map((it, i) => html("option", { value: i }, it)));
}

function watch(ids, update) {
  for (const id of ids) at(id).addEventListener("input", update);
  update();
}

// Uniforms that begin anew from a seed: mulberry32.
function coins(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
