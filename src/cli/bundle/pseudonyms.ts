// How are names and addresses replaced so that a reader can still tell which are the same?
import { findIp, renderIp } from '../../net/ip.ts';

/** Names of one kind: each becomes `<kind>-<number>`. */
interface KnownNames {
  /** `pod`, `namespace`, `container`, `host`, … */
  readonly kind: string;
  readonly names: Iterable<string>;
}

/**
 * Names of pods, of their namespaces and of containers that stand in texts under a key that says so: in records, results and answers, in
 * CNI_ARGS, as pairs or `NAME=value`, and in JSON within JSON. Taken from what is in the report, so that those of attachments that are
 * gone are found in the history and the traces, too.
 */
export function findNames(texts: Iterable<string>): KnownNames[] {
  const kinds = { pod: new Set<string>(), namespace: new Set<string>(), container: new Set<string>() };
  for (const text of texts)
    for (const [, key = '', name = ''] of text.matchAll(NAMED)) {
      const kind = /namespace/i.test(key) ? 'namespace' : /pod/i.test(key) ? 'pod' : 'container';
      kinds[kind].add(name);
    }
  return Object.entries(kinds).map(([kind, names]) => ({ kind, names }));
}

/** A key, its separator, and the value up to a quote, a separator or a space. */
const NAMED =
  /(?<![A-Za-z])(K8S_POD_NAME(?:SPACE)?|pod_?name(?:space)?|container_?name)(?:\\?")?\s*[:=,]\s*(?:\\?")?([^\s"\\;,[\]{}]+)/gi;

/** Addresses that every host has, and that tell nothing. */
const PLAIN: ReadonlySet<string> = new Set(['0.0.0.0', '255.255.255.255', '127.0.0.1', '::', '::1']);
const PLAIN_MACS = /^(?:00(?::00){5}|ff(?::ff){5})$/i;

const MAC = /(?<![\w:])[\da-f]{2}(?::[\da-f]{2}){5}(?![\w:])/gi;
const IPV4 = /(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)/g;
const IPV6 = /(?<![\w:.])(?=[\da-f:]*::|(?:[\da-f]{1,4}:){7})[\da-f:]{2,39}(?![\w:])/gi;

/** @returns a function that replaces the names, and every address, in a text: the same by the same in all texts */
export function openPseudonyms(known: readonly KnownNames[]): (text: string) => string {
  const byName = new Map<string, string>();
  for (const { kind, names } of known) {
    let i = 0;
    for (const name of names) {
      if (name !== '' && !byName.has(name)) byName.set(name, `${kind}-${++i}`);
    }
  }
  const words = [...byName.keys()].sort((a, b) => b.length - a.length).map(escaped);
  const pattern = words.length ? new RegExp(`(?<![\\w-])(?:${words.join('|')})(?![\\w-])`, 'g') : undefined;
  const addresses = new Map<string, string>();
  const numberOf = (kind: string, address: string): string => {
    const name = addresses.get(address) ?? `${kind}-${addresses.size + 1}`;
    addresses.set(address, name);
    return name;
  };
  const replaceIp = (kind: string) => (found: string) => {
    const ip = findIp(found);
    if (ip === undefined) return found;
    const text = renderIp(ip);
    return PLAIN.has(text) ? found : numberOf(kind, text);
  };
  return text => {
    const named = pattern === undefined ? text : text.replace(pattern, word => byName.get(word) ?? word);
    return named
      .replace(MAC, mac => (PLAIN_MACS.test(mac) ? mac : numberOf('mac', mac.toLowerCase())))
      .replace(IPV6, replaceIp('ipv6'))
      .replace(IPV4, replaceIp('ipv4'));
  };
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}
