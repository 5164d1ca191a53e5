// The step of specjax in a browser: Algorithm 1 of Leviathan et al. (2023) and block
// verification (Sun et al. 2024). p is the target's law, q the drafter's, arrays of
// numbers; a test holds every function to the library's, by the same uniforms.

// Logits to a law: temperature, top-k, top-p, argmax (Section 2.2).
function standardize(logits, temperature, topK = Infinity, topP = 1) {
  const law = logits.map(() => 0);
  const order = logits.map((_, id) => id).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) {
    law[order[0]] = 1;
    return law;
  }
  const top = logits[order[0]];
  let kept = order.slice(0, Math.min(topK, order.length));
  const weight = (id) => Math.exp((logits[id] - top) / temperature);
  const all = sum(kept.map(weight));
  let mass = 0;
  kept = kept.filter((id) => {
    const before = mass;
    mass += weight(id);
    return topP >= 1 || before < topP * all;
  });
  const total = sum(kept.map(weight));
  for (const id of kept) law[id] = weight(id) / total;
  return law;
}

function sum(numbers) {
  return numbers.reduce((a, b) => a + b, 0);
}

// beta, the chance that a token drawn from q is kept (Theorem 3.5).
function acceptance(p, q) {
  return sum(p.map((px, x) => Math.min(px, q[x])));
}

// max(0, w p - q), what a rejected token is replaced from; p where nothing is left.
function residual(p, q, w = 1) {
  const left = p.map((px, x) => Math.max(0, w * px - q[x]));
  return left.some((x) => x > 0) ? left : p;
}

// The first id of positive weight whose cumulative weight exceeds u of the total.
function pick(weights, u) {
  const limit = u * sum(weights);
  let total = 0, last = 0;
  for (let id = 0; id < weights.length; id++) {
    total += weights[id];
    if (weights[id] > 0) last = id;
    if (weights[id] > 0 && total > limit) return id;
  }
  return last;
}

// Algorithm 1: p has a row more than q, u is a uniform a drafted token.
function verifyByToken(p, q, drafted, u, sample) {
  let n = 0;
  while (n < drafted.length && u[n] * q[n][drafted[n]] < p[n][drafted[n]]) n++;
  const weights = n < drafted.length ? residual(p[n], q[n]) : p[n];
  return { n, weights, added: pick(weights, sample) };
}

// Block verification: the last success decides, not the first failure.
function verifyByBlock(p, q, drafted, u, sample) {
  const gamma = drafted.length, none = p[0].map(() => 0);
  let w = 1, n = 0, weights = residual(p[0], gamma ? q[0] : none);
  drafted.forEach((x, i) => {
    w = Math.min(1, w * (q[i][x] > 0 ? p[i][x] / q[i][x] : 0));
    const next = i + 1 < gamma ? q[i + 1] : none;
    const s = sum(p[i + 1].map((px, y) => Math.max(0, w * px - next[y])));
    const below = s + (1 - w);
    const h = i + 1 === gamma ? w : below > 0 ? s / below : 1;
    if (u[i] < h) {
      n = i + 1;
      weights = residual(p[n], next, w);
    }
  });
  return { n, weights, added: pick(weights, sample) };
}

// Mean tokens of one call (Eq. 1), and the speed it gives (Theorem 3.8) where a call
// that scores gamma + 1 tokens takes v times one that scores one; v = 1 is the theorem.
function expectedTokens(alpha, gamma) {
  return alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha);
}

function speed(alpha, gamma, c, v = 1) {
  return expectedTokens(alpha, gamma) / (gamma * c + v);
}

if (typeof module !== "undefined") {
  const every = { standardize, acceptance, residual, pick, verifyByToken, verifyByBlock };
  module.exports = { ...every, expectedTokens, speed };
}
