// How are the figures drawn?
import type { Row } from './row.ts';

const WIDTH = 720;
const LABEL_WIDTH = 210;
const BAR_HEIGHT = 16;
const GROUP_GAP = 14;
const COLOURS = { reference: '#8c959f', ours: '#2da44e', warm: '#0969da' } as const;

interface Bar {
  readonly label: string;
  readonly value: number;
  readonly colour: string;
}

/** An SVG of milliseconds per verb of a chain: the reference, ours cold, ours warm. */
export function renderChart(rows: readonly Row[]): string {
  const groups = ['ADD', 'CHECK', 'DEL'].flatMap(verb => {
    const [cold, warm] = ['cold', 'warm'].map(how =>
      rows.find(({ what }) => what === `chain, ${how}: ${verb}`),
    );
    if (!cold || !warm) return [];
    const bars: Bar[] = [
      { label: `${verb}, reference (Go)`, value: cold.reference, colour: COLOURS.reference },
      { label: `${verb}, ours`, value: cold.ours, colour: COLOURS.ours },
      { label: `${verb}, ours with daemon`, value: warm.ours, colour: COLOURS.warm },
    ];
    return [bars];
  });
  const longest = Math.max(...groups.flat().map(({ value }) => value));
  const height = groups.flat().length * BAR_HEIGHT + groups.length * GROUP_GAP + GROUP_GAP;
  let y = GROUP_GAP / 2;
  const drawn = groups.map(bars => {
    const lines = bars.map(bar => {
      const line = renderBar(bar, y, longest);
      y += BAR_HEIGHT;
      return line;
    });
    y += GROUP_GAP;
    return lines.join('\n');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    '<title>Milliseconds per verb of a chain: the reference, ours, ours with the daemon</title>',
    '<rect width="100%" height="100%" fill="white"/>',
    ...drawn,
    '</svg>',
    '',
  ].join('\n');
}

function renderBar({ label, value, colour }: Bar, y: number, longest: number): string {
  const width = ((WIDTH - LABEL_WIDTH - 70) * value) / longest;
  const middle = y + BAR_HEIGHT / 2 + 4;
  return [
    `<text x="${LABEL_WIDTH - 8}" y="${middle}" text-anchor="end">${label}</text>`,
    `<rect x="${LABEL_WIDTH}" y="${y + 2}" width="${width.toFixed(1)}" height="${BAR_HEIGHT - 4}" fill="${colour}"/>`,
    `<text x="${LABEL_WIDTH + width + 6}" y="${middle}">${value.toFixed(1)} ms</text>`,
  ].join('\n');
}
