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

// An SVG in the element of this id; paint: width -> its children. Returns what redraws.
function drawing(id, height, paint) {
  const host = at(id), caption = host.parentElement.querySelector("figcaption");
  const named = { role: "img", "aria-labelledby": caption.id, height };
  const svg = host.appendChild(node("svg", named));
  const draw = () => svg.replaceChildren(...paint(Math.max(host.clientWidth, 200)));
  new ResizeObserver(draw).observe(host);
  return draw;
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
