// How do reports for a terminal use colours?

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

/** Paints, or leaves every text as it is. */
export function painter({ colour }: Style): Paint {
  return (name, text) => {
    const [on, off] = CODES[name];
    return colour && text !== '' ? `\u001b[${on}m${text}\u001b[${off}m` : text;
  };
}
