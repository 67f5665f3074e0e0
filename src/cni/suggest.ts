// Which known word did the author of an unknown one mean?

/** `; did you mean "mtu"?` for the nearest known word, or an empty text if none is near. */
export function didYouMean(word: string, known: Iterable<string>): string {
  const nearest = findNearest(word, known);
  return nearest === undefined ? '' : `; did you mean "${nearest}"?`;
}

/** The known word with the smallest edit distance, which may be at most a third of its length. */
export function findNearest(word: string, known: Iterable<string>): string | undefined {
  let best: { word: string; distance: number } | undefined;
  for (const candidate of known) {
    const limit = Math.max(1, Math.floor(Math.max(word.length, candidate.length) / 3));
    if (Math.abs(word.length - candidate.length) > limit) continue;
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance <= limit && distance < word.length && distance < (best?.distance ?? Infinity))
      best = { word: candidate, distance };
  }
  return best?.word;
}

/** Number of letters to insert, remove, replace or swap with a neighbour to turn one word into the other. */
export function editDistance(a: string, b: string): number {
  let [before, last]: [number[], number[]] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(
        at(row, j - 1) + 1,
        at(last, j) + 1,
        at(last, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1),
        swapped ? at(before, j - 2) + 1 : Infinity,
      );
    }
    [before, last] = [last, row];
  }
  return at(last, b.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Infinity;
}
