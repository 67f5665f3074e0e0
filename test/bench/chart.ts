// How are the figures drawn?
import { cpus, release } from 'node:os';
import { CHAIN_VERBS } from './chain.ts';
import type { Row } from './row.ts';

const WIDTH = 720;
const LABEL_WIDTH = 210;
const BAR_HEIGHT = 16;
const GROUP_GAP = 14;
const COLOURS = { reference: '#8c959f', ours: '#2da44e', warm: '#0969da' } as const;
const TITLE = "Time of a chain's verbs if a runtime starts each executable, relative to the reference";

interface Bar {
  readonly label: string;
  /** Ratio to the reference's time. */
  readonly ratio: number;
  readonly colour: string;
}

/**
 * An SVG of what a runtime sees: ratios to the reference in the same run, which other machines have, too. Verbs that were not
 * measured are left out.
 * @param date when the rows were measured
 */
export function renderChart(rows: readonly Row[], date = new Date()): string {
  const groups = CHAIN_VERBS.flatMap(verb => {
    const [cold, warm] = ['cold', 'warm'].map(how =>
      rows.find(({ what, ratio }) => what === `runtime, ${how}: ${verb}` && Number.isFinite(ratio)),
    );
    if (!cold || !warm) return [];
    const bars: Bar[] = [
      { label: `${verb}, reference (Go)`, ratio: 1, colour: COLOURS.reference },
      { label: `${verb}, ours`, ratio: cold.ratio, colour: COLOURS.ours },
      { label: `${verb}, ours with daemon`, ratio: warm.ratio, colour: COLOURS.warm },
    ];
    return [bars];
  });
  const longest = Math.max(...groups.flat().map(({ ratio }) => ratio));
  const height = (groups.flat().length + 1) * BAR_HEIGHT + (groups.length + 1) * GROUP_GAP;
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
  const origin = `measured ${date.toISOString().slice(0, 10)}, ${cpus().length} cores, Linux ${release()}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<title>${TITLE}</title>`,
    '<rect width="100%" height="100%" fill="white"/>',
    ...drawn,
    `<text x="${LABEL_WIDTH}" y="${y + BAR_HEIGHT / 2}" fill="#57606a">${origin}</text>`,
    '</svg>',
    '',
  ].join('\n');
}

function renderBar({ label, ratio, colour }: Bar, y: number, longest: number): string {
  const width = ((WIDTH - LABEL_WIDTH - 70) * ratio) / longest;
  const middle = y + BAR_HEIGHT / 2 + 4;
  return [
    `<text x="${LABEL_WIDTH - 8}" y="${middle}" text-anchor="end">${label}</text>`,
    `<rect x="${LABEL_WIDTH}" y="${y + 2}" width="${width.toFixed(1)}" height="${BAR_HEIGHT - 4}" fill="${colour}"/>`,
    `<text x="${(LABEL_WIDTH + width + 6).toFixed(1)}" y="${middle}">${ratio.toFixed(2)}</text>`,
  ].join('\n');
}
