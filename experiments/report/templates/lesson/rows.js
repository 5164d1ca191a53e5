// A picture of one call: every weight is read once, whatever the number of rows.
// The clock counts calls of the target.

const ROWS = data.rows, EARLIER = 3; // tokens that the text has already, beside the first
const PAUSE = 1.4; // of a call, before it begins anew

// A strip of the picture, `high` tall: the weights, and a row of attention a token.
// at: the rows that are done, and how far the call is that runs now, with its rows.
function strip(width, top, cell, title, at) {
  const many = ROWS.length, marks = [words(0, top + 14, title)];
  const wide = Math.min(150, width * 0.26), begin = top + 26, high = many * cell;
  const columns = 6, lines = many, sized = wide / columns, tall = high / lines;
  for (let i = 0; i < columns * lines; i++) {
    const x = (i % columns) * sized, y = begin + Math.floor(i / columns) * tall;
    const read = i < at.read * columns * lines;
    marks.push(node("rect", {
      x: x + 1, y: y + 1, width: sized - 2, height: tall - 2, class: read ? "p" : "idle",
      "fill-opacity": read ? 0.9 : 0.35,
    }));
  }
  const named = 62, left = wide + 14 + named;
  const size = Math.min(cell, (width - left - 62) / (EARLIER + many));
  ROWS.forEach(({ token, next }, row) => {
    const y = begin + row * cell, active = at.rows.includes(row), done = row < at.done;
    const shown = active || done || at.waiting;
    if (shown) {
      marks.push(words(left - 6, y + cell * 0.7, token, { class: "small mono", "text-anchor": "end" }));
    }
    for (let column = 0; column < EARLIER + many; column++) {
      const sees = column <= EARLIER + row;
      marks.push(node("rect", {
        x: left + column * size + 1, y: y + 1, width: size - 2, height: cell - 2,
        class: !sees || !shown ? "idle" : "p",
        "fill-opacity": !sees || !shown ? 0.12 : active ? 0.25 + 0.75 * at.read : done ? 1 : 0.2,
      }));
    }
    if (done) {
      const x = left + (EARLIER + many) * size + 6;
      marks.push(words(x, y + cell * 0.7, next, { class: "small mono" }));
    }
  });
  return marks;
}

const cellOf = (width) => (width > 700 ? 28 : 20);
const pictureHeight = (width) => 64 + 2 * cellOf(width) * ROWS.length;

function picture(now) {
  const many = ROWS.length;
  return (width) => {
    const cell = cellOf(width), t = Math.min(now, many), call = Math.min(Math.floor(t), many - 1);
    const over = now >= many, whole = now >= 1;
    const alone = {
      rows: over ? [] : [call], read: over ? 1 : t - call, done: over ? many : call,
    };
    const together = {
      rows: whole ? [] : ROWS.map((_, row) => row), read: Math.min(now, 1),
      done: whole ? many : 0, waiting: true,
    };
    const reads = over ? many : call + 1;
    const times = reads > 1 ? `${reads} times` : "once";
    const one = `one row a call: the weights are read ${times}`;
    return [
      ...strip(width, 0, cell, one, alone),
      ...strip(width, 36 + many * cell, cell, `${many} rows in a call: the weights are read once`, together),
    ];
  };
}
