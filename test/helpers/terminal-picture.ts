// How does coloured output of a command become a picture for a page, and how are its words read back?

const LINE = 17;
const CHAR = 7.8;
const MARGIN = 14;
const CODE = new RegExp(`${String.fromCharCode(27)}\\[(\\d+)m`);
/** What SGR codes mean, as attributes of the picture. */
const LOOKS: Readonly<Record<string, string>> = {
  1: 'font-weight="bold" fill="#ffffff"',
  2: 'fill="#8b949e"',
  31: 'fill="#ff8a82"',
  32: 'fill="#56d364"',
  33: 'fill="#e3b341"',
};

/** An SVG of a dark terminal with these lines, which may have SGR codes. */
export function drawTerminal(title: string, lines: readonly string[]): string {
  const columns = Math.max(...lines.map(line => Bun.stringWidth(line)));
  const [width, height] = [Math.ceil(columns * CHAR) + 2 * MARGIN, lines.length * LINE + 2 * MARGIN];
  const texts = lines.map(
    (line, i) =>
      `<text x="${MARGIN}" y="${MARGIN + LINE * (i + 1) - 5}" xml:space="preserve">${spansOf(line)}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" rx="8" fill="#0d1117"/>`,
    `<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13" fill="#e6edf3">`,
    ...texts,
    '</g>',
    '</svg>',
    '',
  ].join('\n');
}

/** The lines of such a picture. */
export function linesOf(svg: string): string[] {
  return Array.from(svg.matchAll(/<text [^>]*>(.*)<\/text>/g), ([, spans = '']) =>
    spans
      .replace(/<[^>]*>/g, '')
      .replaceAll('&lt;', '<')
      .replaceAll('&gt;', '>')
      .replaceAll('&amp;', '&'),
  );
}

/** What two spaces are before stands at its column, in whichever font it is drawn. */
function spansOf(line: string): string {
  let column = 0;
  let look = '';
  let before = '  ';
  // Texts and codes take turns.
  return line
    .split(CODE)
    .map((part, i) => {
      if (i % 2 === 1) {
        look = LOOKS[part] ?? '';
        return '';
      }
      return part
        .split(/(?<= {2})(?=\S)/)
        .filter(Boolean)
        .map(piece => {
          const x = before.endsWith('  ') ? ` x="${(MARGIN + column * CHAR).toFixed(1)}"` : '';
          column += Bun.stringWidth(piece);
          before = piece;
          return `<tspan${x}${look && ` ${look}`}>${escaped(piece)}</tspan>`;
        })
        .join('');
    })
    .join('');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
