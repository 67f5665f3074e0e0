// How are rates, times and counts formatted?

/** Bits per second with a unit: `10 Mbit`, `512 kbit`. */
export function renderRate(bits: number): string {
  for (const [size, unit] of [
    [1e9, 'Gbit'],
    [1e6, 'Mbit'],
    [1e3, 'kbit'],
  ] as const) {
    if (bits >= size) return `${trim(bits / size)} ${unit}`;
  }
  return `${Math.round(bits)} bit`;
}

/** `21.3 ms`, `1.84 s`. */
export function renderTime(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** `1 plugin`, `4 plugins`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}

/** Three significant digits, without trailing zeros. */
function trim(value: number): string {
  return String(Number(value.toPrecision(3)));
}
