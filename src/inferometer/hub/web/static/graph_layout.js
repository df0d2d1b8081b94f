// Where the boxes of a graph stand: in ranks one after the other, each after all that it reads, with few crossings.

const RANK_GAP = 30; // pixels from one rank of boxes to the next
const BOX_GAP = 18; // … and between two boxes of a rank
const BEND = 10; // the room of a place that a long edge passes through
const LONGEST = 40; // ranks: an edge over more is drawn straight, so that a few of them do not fill the plane
const SWEEPS = 8;

// `boxes` have a `width` and stand in the order of execution; `edges` go from an earlier one to a later one. The ranks
// go from left to right if `across`, else from top to bottom. Boxes and the points of edges get their x and y.
export function layOut(boxes, edges, high, across) {
  const ranks = rankOf(boxes.length, edges);
  const places = boxes.map((box, index) => ({ box, rank: ranks[index], room: across ? high : box.width, above: [], below: [] }));
  const rows = [];
  const stand = (place) => { (rows[place.rank] ||= []).push(place); };
  places.forEach(stand);
  for (const edge of edges) {
    const [start, end] = [places[edge.from], places[edge.to]];
    edge.through = [start];
    if (end.rank - start.rank <= LONGEST) {
      for (let rank = start.rank + 1; rank < end.rank; rank += 1) {
        const bend = { rank, room: BEND, above: [], below: [] };
        stand(bend);
        edge.through.push(bend);
      }
    }
    edge.through.push(end);
    for (let at = 1; at < edge.through.length; at += 1) {
      edge.through[at].above.push(edge.through[at - 1]);
      edge.through[at - 1].below.push(edge.through[at]);
    }
  }
  for (const row of rows) row.forEach((place, index) => { place.side = index * 100; });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) arrange(sweep % 2 ? [...rows].reverse() : rows, sweep % 2 ? "below" : "above");
  return placed(rows, boxes, edges, high, across);
}

// From rank and side to x and y, with the upper left corner at 0 and 0.
function placed(rows, boxes, edges, high, across) {
  let end = 0;
  let [least, most] = [Infinity, -Infinity];
  for (const row of rows) {
    const deep = row.reduce((deepest, place) => Math.max(deepest, place.box ? (across ? place.box.width : high) : 0), 0);
    for (const place of row) {
      place.along = end + deep / 2;
      least = Math.min(least, place.side - place.room / 2);
      most = Math.max(most, place.side + place.room / 2);
    }
    end += deep + RANK_GAP;
  }
  const point = (place) => (across ? { x: place.along, y: place.side - least } : { x: place.side - least, y: place.along });
  for (const row of rows) for (const place of row) if (place.box) Object.assign(place.box, point(place));
  for (const edge of edges) edge.points = edge.through.map(point);
  const [long, broad] = [Math.max(end - RANK_GAP, 0), Math.max(most - least, 0)];
  return across ? { wide: long, high: broad } : { wide: broad, high: long };
}

// The rank of a box: one after the last of those that it reads.
function rankOf(count, edges) {
  const ranks = new Array(count).fill(0);
  const into = Array.from({ length: count }, () => []);
  for (const edge of edges) into[edge.to].push(edge.from);
  for (let index = 0; index < count; index += 1) for (const from of into[index]) ranks[index] = Math.max(ranks[index], ranks[from] + 1);
  return ranks;
}

// Each rank in the order of the middle of its neighbours, and as near to it as the boxes beside it leave room.
function arrange(rows, side) {
  for (const row of rows) {
    for (const place of row) {
      const near = place[side];
      place.wish = near.length ? near.reduce((total, each) => total + each.side, 0) / near.length : place.side;
    }
    row.sort((a, b) => a.wish - b.wish);
    let edge = -Infinity;
    let off = 0;
    for (const place of row) {
      place.side = Math.max(place.wish, edge + place.room / 2);
      edge = place.side + place.room / 2 + BOX_GAP;
      off += place.wish - place.side;
    }
    for (const place of row) place.side += off / row.length; // what was pushed aside is shared by all
  }
}
