// How are rates, times and counts formatted, and how is text coloured?

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

/** Whether to use colours. */
export interface Style {
  readonly colour: boolean;
}

/** What a text may look like. */
export type Colour = 'bold' | 'dim' | 'red' | 'green' | 'yellow';
/** Gives a text a colour. */
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
