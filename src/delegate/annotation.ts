// Which networks does an annotation of a pod select? (Multi-network specification 1.3, section 4.1)

import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined, parseJson, quote } from '../cni/json.ts';
import { findIfnameProblem } from '../net/interface.ts';
import { findNameProblem, parseSelection, type Selection, selectByName } from './selection.ts';

/** Annotation that names further networks of a pod. */
export const NETWORKS_ANNOTATION = 'k8s.v1.cni.cncf.io/networks';

/** Annotation that names a network to replace the default one. */
export const DEFAULT_NETWORK_ANNOTATION = 'v1.multus-cni.io/default-network';

/** Characters: Kubernetes allows no more for all annotations of an object. */
const MAX_TEXT = 256 * 1024;
/** Characters of it that an error repeats. */
const MAX_SHOWN = 1_000;
/** Levels of arrays and objects, of which a selection itself has four. */
const MAX_DEPTH = 32;

/**
 * Parses both grammars: `[namespace/]name[@interface],…`, and an array of JSON objects. Empty text selects none. Text of any size
 * costs no more than a look at it.
 * @param what names the text in the error (`annotation "k8s.v1.cni.cncf.io/networks"`)
 * @param most networks that it may name, which `maxNetworks` says of a pod
 * @throws CniError 7 (6 for broken JSON) naming the element
 */
export function parseSelections(text: string, what: string, most = Number.POSITIVE_INFINITY): Selection[] {
  if (text.length > MAX_TEXT) throw unusable(what, `it has ${text.length} characters, more than ${MAX_TEXT}`);
  if (/[[{"]/.test(text)) return parseObjects(text, what, most);
  const items = text.split(',').flatMap(item => item.trim() || []);
  refuseMany(items.length, what, most);
  return items.map(item => parseShort(item, what));
}

function refuseMany(count: number, what: string, most: number): void {
  if (count <= most) return;
  throw unusable(
    what,
    `it names ${count} networks; a pod may ask for ${most} in all ("maxNetworks" of the runner)`,
  );
}

function parseObjects(text: string, what: string, most: number): Selection[] {
  if (isDeeperThan(MAX_DEPTH, text))
    throw unusable(what, `its JSON is nested more than ${MAX_DEPTH} levels deep`);
  const details = text.slice(0, MAX_SHOWN);
  const value = parseJson(text, (problem, cause) => {
    const message = `Cannot decode ${what}: ${problem}`;
    return new CniError(ErrorCode.decodingFailure, message, { details, cause });
  });
  if (!Array.isArray(value)) throw unusable(what, 'expected an array of objects', details);
  refuseMany(value.length, what, most);
  return value.map((one, i) => parseSelection(one, `element ${i} of ${what}`, 'pod'));
}

/** Whether JSON has more levels: what copies or prints it later has a stack for each of them. */
function isDeeperThan(most: number, text: string): boolean {
  let depth = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]+|\\.)*"?|[[{\]}]/g)) {
    if (token === '[' || token === '{') depth++;
    else if (token === ']' || token === '}') depth--;
    if (depth > most) return true;
  }
  return false;
}

function unusable(what: string, problem: string, details?: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot use ${what}: ${problem}`, defined({ details }));
}

function parseShort(item: string, what: string): Selection {
  const [place = '', ifname, ...moreIfnames] = item.split('@');
  const parts = place.split('/');
  const name = parts.at(-1) ?? '';
  const namespace = parts.length > 1 ? parts[0] : undefined;
  const problem =
    moreIfnames.length || parts.length > 2
      ? 'expected [namespace/]name[@interface]'
      : (findNameProblem(namespace, name) ?? (ifname === undefined ? undefined : findIfnameProblem(ifname)));
  if (problem !== undefined) {
    throw unusable(`${quote(item)} of ${what}`, problem);
  }
  return selectByName(name, namespace, ifname);
}
