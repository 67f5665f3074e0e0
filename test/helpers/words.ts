// Which words is a command line made of?

/** Words as a shell would split them; only single quotes are known. */
export function wordsOf(line: string): string[] {
  return Array.from(line.matchAll(/'([^']*)'|(\S+)/g), ([, quoted, bare]) => quoted ?? bare ?? '');
}
