// Which parts of a report must not leave the node?
//
// Logs and traces mask what a key calls a secret. A report also contains what others wrote, so here more is masked: what looks like
// a secret wherever it stands, and every value of an environment.

import { isObject, tryParse } from '../../cni/json.ts';
import { findIp, renderIp } from '../../net/ip.ts';
import { isSecretName, maskText } from '../../observe/secrets.ts';

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
  const words = [...byName.keys()].sort((a, b) => b.length - a.length);
  const literal = words.map(word => word.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')).join('|');
  const pattern = literal ? new RegExp(`(?<![\\w-])(?:${literal})(?![\\w-])`, 'g') : undefined;
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

const MASK = '***';

/** Deeper than any configuration; what is below is masked. */
const MAX_DEPTH = 64;

/** A text as it may be shown: JSON, lines of JSON, or any other. */
export function redactText(text: string): string {
  const whole = parseJson(text);
  if (whole !== undefined) return `${JSON.stringify(redact(whole), null, 2)}\n`;
  // A certificate or a key extends over several lines.
  return redactPatterns(text)
    .split('\n')
    .map(line => {
      const value = parseJson(line);
      return value === undefined ? maskText(maskEnvironment(line)) : JSON.stringify(redact(value));
    })
    .join('\n');
}

/** A value as it may be shown; the original is unchanged. */
export function redact(value: unknown, depth = 0): unknown {
  if (depth > MAX_DEPTH) return MASK;
  if (typeof value === 'string') return redactString(value, depth);
  if (Array.isArray(value)) {
    // A pair, as CNI_ARGS are kept in records, or the words of a command line.
    const isPair = value.length === 2;
    return value.map((one, i) => {
      const before: unknown = value[i - 1];
      const isNamed = typeof before === 'string' && (isPair || before.startsWith('-')) && isSecret(before);
      return isNamed && typeof one === 'string' ? MASK : redact(one, depth + 1);
    });
  }
  if (!isObject(value)) return value;
  const label = [value.name, value.key].find(one => typeof one === 'string');
  const isSecretEntry = typeof label === 'string' && isSecret(label);
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => {
      if (one === null || one === '' || typeof one === 'boolean') return [key, one];
      if (isSecret(key) && !(key === 'key' && typeof one === 'string' && isSecretEntry)) return [key, MASK];
      if (isSecretEntry && key === 'value') return [key, MASK];
      return [key, ENVIRONMENT.test(key) ? maskValues(one) : redact(one, depth + 1)];
    }),
  );
}

/** A string may contain a configuration, as the cached results of libcni do in base64. */
function redactString(text: string, depth: number): unknown {
  const inner = parseJson(text);
  if (inner !== undefined) return JSON.stringify(redact(inner, depth + 1));
  const isBase64 = /^[\w+/]{16,}={0,2}$/.test(text);
  const decoded = isBase64 ? parseJson(Buffer.from(text, 'base64').toString()) : undefined;
  if (decoded !== undefined) return { decoded: redact(decoded, depth + 1) };
  return maskText(redactPatterns(text));
}

/** Words that make a secret of a key wherever they stand in it, and parts of a kubeconfig. */
const ANYWHERE =
  /^(token|password|passwd|passphrase|secrets?|credentials?|authorization|bearer|cookie|pwd)$/i;
const KUBECONFIG = /^(certificate-authority|client-certificate|client-key)-data$/i;

function isSecret(name: string): boolean {
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1 $2').split(/[^A-Za-z\d]+/);
  return isSecretName(name) || KUBECONFIG.test(name) || words.some(word => ANYWHERE.test(word));
}

const ENVIRONMENT = /^(env|environ|environment|envs)$/i;

/** The values of an environment: an object, pairs `NAME=value`, or objects with a value. */
function maskValues(value: unknown): unknown {
  if (typeof value === 'string') return value.replace(/=.*$/s, `=${MASK}`);
  if (Array.isArray(value)) return value.map(maskValues);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, key === 'name' ? one : MASK]));
}

/** `Environment=` of systemd's units. */
function maskEnvironment(line: string): string {
  const [, key, rest] = /^(\s*Environment=)(.*)$/.exec(line) ?? [];
  if (key === undefined || rest === undefined) return line;
  const names = Array.from(rest.matchAll(/(?:^|\s)"?([A-Za-z_]\w*)=/g), ([, name]) => name);
  return `${key}${names.map(name => `${name}=${MASK}`).join(' ')}`;
}

/** Keys, certificates and tokens, whatever they are called. */
function redactPatterns(text: string): string {
  return text.replace(PEM, MASK).replace(WEB_TOKEN, MASK).replace(KUBECONFIG_LINE, `$1${MASK}`);
}

/** RFC 7468 */
const PEM = /-----BEGIN ([A-Z ]+)-----[\s\S]*?-----END \1-----/g;
/** RFC 7519: header and payload begin with `{"` in base64. */
const WEB_TOKEN = /\beyJ[\w-]{8,}\.eyJ[\w-]{4,}(?:\.[\w-]*)?/g;
const KUBECONFIG_LINE = /((?:certificate-authority|client-certificate|client-key)-data["']?\s*:\s*)\S+/gi;

function parseJson(text: string): unknown {
  return /^\s*[[{]/.test(text) ? tryParse(text) : undefined;
}
