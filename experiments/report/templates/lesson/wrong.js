// One token by each rule: (p, q, drafted x, uniform u, another uniform) -> token. The
// names are those of `experiments.report.lesson.rules`.
const kept = (p, q, x, u) => u * q[x] < p[x];
const RULES = {
  "Algorithm 1": (p, q, x, u, sample) => {
    const { n, added } = verifyByToken([p, p], [q], [x], [u], sample);
    return n ? x : added;
  },
  "after a rejection, draw from p": (p, q, x, u, sample) =>
    kept(p, q, x, u) ? x : pick(p, sample),
  "after a rejection, draw from |p - q|": (p, q, x, u, sample) =>
    kept(p, q, x, u) ? x : pick(p.map((px, y) => Math.abs(px - q[y])), sample),
  "draw the residual by the uniform that rejected": (p, q, x, u) =>
    kept(p, q, x, u) ? x : pick(residual(p, q), u),
  "keep a draft if p >= q, else reject it": (p, q, x, u, sample) =>
    p[x] >= q[x] ? x : pick(residual(p, q), sample),
  "keep every draft": (p, q, x) => x,
};
