// What does `CNI_ARGS` contain?
import { CniError, ErrorCode } from './errors.ts';

/** Key-value pairs of `CNI_ARGS`, in order. */
export type CniArgs = readonly (readonly [key: string, value: string])[];

/**
 * Splits `K=V;K2=V2`. Every element needs exactly one "=", as in the reference.
 * @throws CniError 4 naming the element
 */
export function parseCniArgs(text: string): CniArgs {
  if (text === '') return [];
  return text.split(';').map(element => {
    const [key, value, ...more] = element.split('=');
    if (key === undefined || value === undefined || more.length) {
      throw new CniError(
        ErrorCode.invalidEnvironment,
        `Cannot read CNI_ARGS: invalid pair ${JSON.stringify(element)}, expected KEY=VALUE`,
        { details: text },
      );
    }
    return [key, value] as const;
  });
}

/** Like {@link parseCniArgs} for callers that only report the arguments: returns an empty list for malformed text. */
export function findCniArgs(text: string): CniArgs {
  try {
    return parseCniArgs(text);
  } catch {
    return [];
  }
}

/** Why a pair cannot be written to `CNI_ARGS` (it would be read back as another pair, or as several), or undefined. */
export function findPairProblem(key: string, value: string): string | undefined {
  const isWhole = key !== '' && !/[;=\0]/.test(key) && !/[;\0]/.test(value);
  return isWhole ? undefined : 'key and value must not contain ";", and the key no "="';
}

/** `K=V;K2=V2` for the environment of a plugin. */
export function renderCniArgs(args: CniArgs): string {
  return args.map(([key, value]) => `${key}=${value}`).join(';');
}

/**
 * Picks the arguments that a plugin knows, by name; the last of a repeated argument wins. Unknown arguments are an error
 * unless `IgnoreUnknown` is set, at any position.
 * @throws CniError 4 listing the unknown ones
 */
export function pickCniArgs<K extends string>(
  args: CniArgs,
  known: readonly K[],
): Partial<Record<K, string>> {
  const picked: Partial<Record<K, string>> = {};
  const unknown: string[] = [];
  let ignoreUnknown = false;
  for (const [key, value] of args) {
    if (key === 'IgnoreUnknown') ignoreUnknown = parseBoolean(value);
    else if ((known as readonly string[]).includes(key)) picked[key as K] = value;
    else unknown.push(`${key}=${value}`);
  }
  if (unknown.length && !ignoreUnknown) {
    throw new CniError(
      ErrorCode.invalidEnvironment,
      `Cannot use CNI_ARGS: unknown args ${JSON.stringify(unknown)}; set IgnoreUnknown=1 to ignore them`,
    );
  }
  return picked;
}

function parseBoolean(value: string): boolean {
  const word = value.toLowerCase();
  if (word === '1' || word === 'true') return true;
  if (word === '0' || word === 'false') return false;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot read CNI_ARGS: IgnoreUnknown must be 1, true, 0 or false, found ${JSON.stringify(value)}`,
  );
}

/** The member of `args.cni` in which the delegate runner names the IPAMClaim: `namespace`, `name`, `uid`. */
export const CLAIM_ARG = 'catena.cni.cncf.io/claim';

/** The last value of an argument. */
export function argOf({ args }: { readonly args: CniArgs }, key: string): string | undefined {
  return args.findLast(([name]) => name === key)?.[1];
}

/** Namespace and name of the Kubernetes pod that the arguments are of; undefined for any other container. */
export function podNamedIn(of: { readonly args: CniArgs }): { namespace: string; name: string } | undefined {
  const [namespace, name] = [argOf(of, 'K8S_POD_NAMESPACE'), argOf(of, 'K8S_POD_NAME')];
  return namespace && name ? { namespace, name } : undefined;
}
