// How is text broken into lines that fit the terminal?

/** No text is broken into narrower lines, however narrow the terminal is. */
const LEAST = 20;

/**
 * Breaks a text between words. A word that is wider than a line has a line of its own, so that it can still be copied.
 * @param width columns of a line
 * @param first what the first line begins with
 * @param indent what the others begin with; two columns more than the first by default
 */
export function wrap(text: string, width: number, first = '', indent = `${first}  `): string[] {
  const limit = Math.max(width, indent.length + LEAST);
  const lines: string[] = [];
  let line = first;
  let hasWord = false;
  for (const word of text.split(' ')) {
    if (hasWord && line.length + 1 + word.length > limit) {
      lines.push(line);
      line = `${indent}${word}`;
    } else line = hasWord ? `${line} ${word}` : `${line}${word}`;
    hasWord = true;
  }
  return [...lines, line];
}

/**
 * Two columns, indented by two. The right one is wrapped; where the left one leaves too little room, the right one begins below it.
 * @param width columns of the terminal
 */
export function renderColumns(rows: readonly (readonly [string, string])[], width: number): string[] {
  const left = Math.max(...rows.map(([name]) => name.length));
  const indent = ' '.repeat(left + 4);
  if (width - indent.length < 2 * LEAST) {
    return rows.flatMap(([name, text]) => [`  ${name}`, ...wrap(text, width, '      ', '      ')]);
  }
  return rows.flatMap(([name, text]) => wrap(text, width, `  ${name.padEnd(left)}  `, indent));
}
