// Which key occurs twice in an object of a JSON document, where a decoder would silently take the last?

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

interface Container {
  /** Keys so far; undefined for an array. */
  readonly keys: Set<string> | undefined;
  /** True for the object with the requested name. */
  readonly watched: boolean;
  key: string | undefined;
}

/**
 * The first key that occurs twice in the object that is the member `member` of the document.
 * @param text a valid JSON document
 * @param member compared case-insensitively, as members are everywhere
 */
export function findRepeatedKey(text: string, member: string): string | undefined {
  const stack: Container[] = [];
  let expectKey = false;
  for (const [token] of text.matchAll(TOKEN)) {
    const at = stack.at(-1);
    if (token === '{' || token === '[') {
      const watched = stack.length === 1 && at?.key?.toLowerCase() === member.toLowerCase();
      stack.push({ keys: token === '{' ? new Set() : undefined, watched, key: undefined });
      expectKey = token === '{';
    } else if (token === '}' || token === ']') {
      stack.pop();
      expectKey = false;
    } else if (token === ',') expectKey = at?.keys !== undefined;
    else if (token === ':') expectKey = false;
    else if (expectKey && at?.keys) {
      at.key = JSON.parse(token) as string;
      if (at.watched && at.keys.has(at.key)) return at.key;
      at.keys.add(at.key);
    }
  }
  return undefined;
}
