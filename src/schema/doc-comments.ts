// What do the doc comments in a schema's source say about each key?

/** The text of a comment by path of the key (`ipam.subnet`), in order. */
export type DocComments = ReadonlyMap<string, string>;

const TOKEN = /\/\*\*(?<doc>[\s\S]*?)\*\/|\/\/.*|'(?:\\.|[^'\\\n])*'|(?<key>[\w$]+)\s*:|[^\s]/g;

/**
 * Reads the comments of object keys from source text. A key's path consists of the enclosing keys; a constant of its own starts a
 * new path.
 */
export function readDocComments(source: string): DocComments {
  const comments = new Map<string, string>();
  const holders: string[] = [];
  let words: string | undefined;
  let [key, keyDepth, depth] = ['', 0, 0];
  for (const { 0: token, groups = {} } of source.matchAll(TOKEN)) {
    if (groups.doc !== undefined) {
      words = oneLine(groups.doc);
      continue;
    }
    if (groups.key !== undefined) {
      [key, keyDepth] = [groups.key, depth];
      const path = [...holders, key].filter(Boolean).join('.');
      if (words !== undefined && !comments.has(path)) comments.set(path, words);
    } else if (token === '(' || token === '[') depth++;
    else if (token === ')' || token === ']') depth--;
    else if (token === '{') {
      holders.push(key);
      key = '';
    } else if (token === '}') {
      holders.pop();
      key = '';
    } else if ((token === ',' || token === ';') && depth === keyDepth) key = '';
    words = undefined;
  }
  return comments;
}

function oneLine(comment: string): string {
  return comment
    .replace(/\n\s*\* ?/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}
