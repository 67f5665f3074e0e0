// What does a resolv.conf say about name servers?
import { readFileSync } from 'node:fs';
import { defined } from '../../src/cni/defined.ts';
import type { ResultDns } from '../../src/cni/result.ts';

/**
 * Reads a file in the format of resolv.conf(5).
 * @throws Error when it cannot be read
 */
export function readResolvConf(path: string): ResultDns {
  try {
    return parseResolvConf(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw new Error(`Cannot read "ipam.resolvConf" ${path}: ${(cause as Error).message}`, { cause });
  }
}

/** `nameserver` takes one value per line, the last `domain` wins, `search` and `options` accumulate over lines. */
export function parseResolvConf(text: string): ResultDns {
  const nameservers: string[] = [];
  const search: string[] = [];
  const options: string[] = [];
  let domain: string | undefined;
  for (const line of text.split('\n')) {
    const [keyword, ...values] = withoutComment(line.trim().split(/\s+/));
    const [first] = values;
    if (first === undefined) continue;
    if (keyword === 'nameserver') nameservers.push(first);
    else if (keyword === 'domain') domain = first;
    else if (keyword === 'search') search.push(...values);
    else if (keyword === 'options') options.push(...values);
  }
  return {
    ...(nameservers.length ? { nameservers } : {}),
    ...defined({ domain }),
    ...(search.length ? { search } : {}),
    ...(options.length ? { options } : {}),
  };
}

function withoutComment(words: string[]): string[] {
  const comment = words.findIndex(word => word.startsWith('#') || word.startsWith(';'));
  return comment < 0 ? words : words.slice(0, comment);
}
