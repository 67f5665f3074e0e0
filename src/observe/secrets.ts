// Which values must never be kept in a trace, a log line or a label?

/** Stands where a secret was. */
const MASK = '***';

/** Names that say it all, as the last word of a key (`apiToken`, `private-key`, `registry_password`). */
const SECRET_WORDS: ReadonlySet<string> = new Set([
  ...['token', 'tokens', 'password', 'passwd', 'passphrase', 'secret', 'secrets', 'key', 'keys'],
  ...['credential', 'credentials', 'authorization'],
]);

/** Deeper than any configuration is; what lies below is not kept. */
const MAX_DEPTH = 32;

/** Whether the value of such a key is nobody's business. */
export function isSecretName(name: string): boolean {
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1 $2').split(/[^A-Za-z\d]+/);
  const last = words.findLast(word => word !== '') ?? '';
  return SECRET_WORDS.has(last.toLowerCase());
}

/** A copy in which values of secret names are masked, however deep; the original is left alone. */
export function maskSecrets<T>(value: T): T {
  return mask(value, 0) as T;
}

/**
 * Masks what follows a secret name in running text: `token=abc`, `"password": "abc"`, `Authorization: Bearer abc`.
 * Quotes stay, so that JSON stays JSON.
 */
export function maskText(text: string): string {
  return text.replace(PAIR, (whole, name: string, between: string, value: string) => {
    if (!isSecretName(name)) return whole;
    const quote = /^\\?["']/.exec(value)?.[0] ?? '';
    return `${name}${between}${quote}${MASK}${quote}`;
  });
}

/**
 * A name, what parts it from its value, and the value: in quotes, or up to what ends a word. A name begins where a word
 * does, which keeps the search from starting anew at every letter of a long one.
 */
const PAIR = new RegExp(
  [
    `(?<![\\w.-])([\\w.-]{0,63}?(?:${[...SECRET_WORDS].join('|')}))`,
    /((?:\\?["'])?\s{0,8}[:=]\s{0,8})/,
    /(\\"(?:(?!\\").)*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|(?:(?:Bearer|Basic)\s+)?[^\s,;&"'{}[\]\\]+)/,
  ]
    .map(part => (typeof part === 'string' ? part : part.source))
    .join(''),
  'gi',
);

function mask(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= MAX_DEPTH) return MASK;
  if (Array.isArray(value)) return value.map(one => mask(one, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      name,
      isSecretName(name) && one !== '' && one !== null ? MASK : mask(one, depth + 1),
    ]),
  );
}
