// How are rates, times, counts and tables written, and how is text coloured?

/** Bits per second with a unit: `10 Mbit`, `512 kbit`. */
export function renderRate(bits: number): string {
  const [unit, size] = UNITS.find(([, least]) => bits >= least) ?? ['bit', 1];
  // Three significant digits, without trailing zeros.
  return `${size === 1 ? Math.round(bits) : Number((bits / size).toPrecision(3))} ${unit}`;
}

const UNITS = Object.entries({ Gbit: 1e9, Mbit: 1e6, kbit: 1e3 });

/** `21.3 ms`, `1.84 s`. */
export function renderTime(ms: number): string {
  return ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** `1 plugin`, `4 plugins`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}

export interface Style {
  readonly colour: boolean;
}

export type Colour = 'bold' | 'dim' | 'red' | 'green' | 'yellow';
export type Paint = (colour: Colour, text: string) => string;

/** Select Graphic Rendition (ECMA-48): switch on, switch off. */
const CODES: Readonly<Record<Colour, readonly [on: number, off: number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
};

/**
 * Begins a colour until the text is written ({@link showable} of the command): characters for private use that are other ones in each
 * process, so that a text of someone else brings no colours.
 */
export const COLOUR = `${String.fromCharCode(...Array.from({ length: 2 }, () => 0xe000 + Math.floor(Math.random() * 0x1900)))}[`;

/** Every colour in a text. */
export const COLOURS = new RegExp(`${COLOUR.replace('[', '\\[')}\\d+m`, 'g');

/** A text of someone else as one line, so that it cannot pretend to be further lines of a report. */
export function oneLine(text: string): string {
  return text.replace(/[\r\n]/g, char => (char === '\n' ? '\\n' : '\\r'));
}

/** Paints, or leaves every text as it is. */
export function painter({ colour }: Style): Paint {
  return (name, text) => {
    const [on, off] = CODES[name];
    return colour && text !== '' ? `${COLOUR}${on}m${text}${COLOUR}${off}m` : text;
  };
}

/** No column of a table becomes narrower than this. */
const LEAST = 5;
/** Behind these a long word may go on in the next line. */
const JOINTS = /[,/:._-]/g;

/**
 * Aligned columns, two spaces apart, each line with a line break. If they are wider than the terminal, the widest become narrower and their
 * cells go on below, between words if that is possible: nothing is cut.
 * @param rows the header first; a cell may have several lines
 * @param width columns of the terminal, if there is one
 * @param paint gives a cell its colour, by its row and column
 */
export function renderTable(
  rows: readonly (readonly string[])[],
  width = Infinity,
  paint: (cell: string, row: number, column: number) => string = cell => cell,
): string {
  const longest = (i: number, between: RegExp) =>
    Math.max(...rows.flatMap(row => (row[i] ?? '').split(between).map(part => part.length)));
  const widths = (rows[0] ?? []).map((_, i) => longest(i, /\n/));
  const longestWord = (_: unknown, i: number) => Math.max(LEAST, longest(i, /[ \n]/));
  for (const least of [widths.map(longestWord), widths.map(() => LEAST)]) narrow(widths, least, width);
  return rows
    .flatMap((row, at) => {
      const cells = row.map((cell, i) => cell.split('\n').flatMap(line => breakLine(line, widths[i] ?? 0)));
      return Array.from({ length: Math.max(...cells.map(lines => lines.length)) }, (_, y) => {
        const parts = cells.map((lines, i) => {
          const part = lines[y] ?? '';
          return `${part === '' ? '' : paint(part, at, i)}${' '.repeat((widths[i] ?? 0) - part.length)}`;
        });
        return `${parts.join('  ').trimEnd()}\n`;
      });
    })
    .join('');
}

/** Narrows the widest columns until all fit, none below its least. */
function narrow(widths: number[], least: readonly number[], width: number): void {
  const total = () => widths.reduce((sum, one) => sum + one, 2 * (widths.length - 1));
  while (total() > width) {
    const wider = widths.filter((one, i) => one > (least[i] ?? 0));
    if (wider.length === 0) return;
    const widest = widths.findLastIndex((one, i) => one > (least[i] ?? 0) && one === Math.max(...wider));
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
}

function breakLine(line: string, width: number): string[] {
  const lines: string[] = [];
  let rest = line;
  while (rest.length > width) {
    const space = rest.lastIndexOf(' ', width);
    const joint = [...rest.slice(0, width).matchAll(JOINTS)].at(-1)?.index ?? -1;
    const at = space > 0 ? space : joint > 0 ? joint + 1 : width;
    lines.push(rest.slice(0, at).trimEnd());
    rest = rest.slice(at).trimStart();
  }
  return [...lines, rest];
}

/** `2026-01-31 08:00:00`. @param time in ISO format, or milliseconds since 1970 */
export function localTime(time: string | number): string {
  // Whatever knows locales takes 10 ms to load.
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, '0');
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join('-');
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')}`;
}
