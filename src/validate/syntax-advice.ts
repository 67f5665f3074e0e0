// Which habit from another language broke the JSON, and what does JSON want instead?
import type { TextPlace } from '../cni/json-place.ts';

/**
 * Advice to add to the message about a syntax problem, beginning with "; "; empty where there is none.
 * @param place where reading stopped
 */
export function adviseOnSyntax(text: string, { line, column }: TextPlace): string {
  const lines = text.split('\n');
  const here = lines[line - 1] ?? '';
  const found = here[column - 1] ?? '';
  const before = [...lines.slice(0, line - 1), here.slice(0, column - 1)].join('\n').trimEnd();
  if (found === '/' || found === '#') return '; JSON has no comments';
  if (found === "'" || found === '`') return '; JSON wants double quotes';
  if (found === '\ufeff') return '; save the file without a byte order mark';
  if (before.endsWith(',') && (found === '}' || found === ']'))
    return '; JSON has no comma after the last value';
  if (/["}\]\de]$/.test(before) && (found === '"' || found === '{' || found === '['))
    return '; a comma is missing before it';
  if (/[{,]$/.test(before) && /[A-Za-z_]/.test(found)) return '; JSON wants keys in double quotes';
  return '';
}
