// Which values must never be kept in a trace, a log line or a label?

const MASK = '***';

/** Words that mark a secret as the last word of a key (`apiToken`, `private-key`, `registry_password`). */
const SECRET_WORDS: readonly string[] = [
  ...['token', 'tokens', 'password', 'passwd', 'passphrase', 'secret', 'secrets', 'key', 'keys'],
  ...['credential', 'credentials', 'authorization', 'auth', 'bearer', 'cookie', 'apikey', 'pass', 'pwd'],
  ...['psk', 'pem', 'community'],
];

/** Deeper than any configuration; values below that are dropped. */
const MAX_DEPTH = 32;

export function isSecretName(name: string): boolean {
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1 $2').split(/[^A-Za-z\d]+/);
  const last = words.findLast(word => word !== '') ?? '';
  return SECRET_WORDS.includes(last.toLowerCase());
}

/** A deep copy in which the values of secret keys are masked; the original is unchanged. */
export function maskSecrets<T>(value: T): T {
  return mask(value, 0) as T;
}

/**
 * Masks the value after a secret name in running text (`token=abc`, `"password": "abc"`, `Authorization: Bearer abc`, `--token abc`) and the
 * user part of a URL (`https://user:abc@host`). Quotes are kept, so that JSON stays valid.
 */
export function maskText(text: string): string {
  return maskOptions(maskUrls(text)).replace(PAIR, (whole, name: string, between: string, value: string) => {
    if (!isSecretName(name)) return whole;
    const quote = /^\\?["']/.exec(value)?.[0] ?? '';
    return `${name}${between}${quote}${MASK}${quote}`;
  });
}

/** Options of a command line, whose value is the next word: `--token abc`. */
function maskOptions(text: string): string {
  return text.replace(OPTION, (whole, name: string, space: string) =>
    isSecretName(name) ? `${name}${space}${MASK}` : whole,
  );
}

const OPTION = /(?<![\w-])(--?[A-Za-z][\w-]{0,63})(\s{1,8})(?!-)[^\s,;"'[\]{}]+/g;

function maskUrls(text: string): string {
  return text.replace(URL_USER, (whole, scheme: string, user: string) => {
    const colon = user.indexOf(':');
    if (colon >= 0) return `${scheme}${user.slice(0, colon)}:${MASK}@`;
    // A token is often used as the user name; the one in ssh://git@host is not a secret.
    return /^https?:/i.test(scheme) && user !== '' ? `${scheme}${MASK}@` : whole;
  });
}

/** Scheme and user of a URL (RFC 3986, "authority"). The bounds keep the search short in a long line. */
const URL_USER = /([a-z][a-z\d+.-]{0,31}:\/\/)([^\s/?#@"'<>\\]{0,4096})@/gi;

/**
 * A name, its separator, and its value: in quotes, or up to the end of a word. A name must start at the start of a word, so that
 * the search does not start again at every letter of a long word.
 */
const PAIR = new RegExp(
  [
    `(?<![\\w.-])([\\w.-]{0,63}?(?:${SECRET_WORDS.join('|')}))`,
    /((?:\\?["'])?\s{0,8}[:=]\s{0,8})/,
    /(\\"(?:(?!\\").)*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|(?:(?:Bearer|Basic)\s+)?[^\s,;&"'{}[\]\\]+)/,
  ]
    .map(part => (typeof part === 'string' ? part : part.source))
    .join(''),
  'gi',
);

function mask(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return maskUrls(value);
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
