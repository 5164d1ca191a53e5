// One text, written by the target alone and with a draft, on a clock that counts calls
// of the target on one token.

const TEXT = data.text, STEP = TEXT.gamma * TEXT.c + TEXT.v;
const written = TEXT.steps.flatMap((it) => [...it.accepted, ...it.added]);
const END = written.length; // calls that the target alone needs

const span = (token, kind) => html("span", { class: `token ${kind}` }, token);

// The tokens that a lane shows at a moment, each with its class, and how many count.
function aloneAt(now) {
  const many = Math.min(Math.floor(now + 1e-9), END);
  return { tokens: written.slice(0, many).map((it) => [it, "added"]), many };
}

function draftedAt(now) {
  const tokens = [];
  let begun = 0, many = 0;
  for (const it of TEXT.steps) {
    if (begun >= now) break;
    const drafts = [...it.accepted, ...it.rejected, ...it.untested];
    const gone = now - begun, call = drafts.length * TEXT.c + TEXT.v;
    if (gone >= call - 1e-9) {
      tokens.push(...it.accepted.map((token) => [token, "accepted"]));
      tokens.push(...it.added.map((token) => [token, "added"]));
      many += it.accepted.length + it.added.length;
    } else { // drafts that wait, as many as there are by now
      const there = Math.min(drafts.length, Math.floor(gone / TEXT.c));
      tokens.push(...drafts.slice(0, there).map((token) => [token, "waiting"]));
    }
    begun += call;
  }
  return { tokens, many };
}

// The blocks of a lane's bar: [begin, end, class], in calls.
function blocks(lane) {
  if (lane === "alone") return written.map((_, i) => [i, i + 1, "p"]);
  const found = [];
  let begun = 0;
  for (const it of TEXT.steps) {
    const many = it.accepted.length + it.rejected.length + it.untested.length;
    const scored = begun + many * TEXT.c;
    found.push([begun, scored, "q"], [scored, scored + TEXT.v, "p"]);
    begun = scored + TEXT.v;
  }
  return found;
}

const LANES = [["alone", aloneAt, blocks("alone")], ["drafted", draftedAt, blocks("drafted")]];

// The bar of a lane up to a moment.
const bar = (several, now) => (width) => {
  const x = (calls) => (calls / END) * width;
  const marks = [node("rect", { x: 0, y: 0, width, height: 22, class: "idle", "fill-opacity": 0.15 })];
  for (const [from, to, kind] of several.filter(([from]) => from < now)) {
    const end = Math.min(to, now), gap = x(1) > 4 ? 1 : 0.4;
    marks.push(node("rect", {
      x: x(from), y: 0, width: Math.max(0.3, x(end) - x(from) - gap), height: 22, class: kind,
    }));
  }
  return marks;
};
