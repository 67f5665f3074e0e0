// Which networks does an annotation of a pod select? (Multi-network specification 1.3, section 4.1)
import { CniError, ErrorCode } from '../cni/errors.ts';
import { parseJson } from '../cni/json.ts';
import { findIfnameProblem } from '../net/ifname.ts';
import { findNameProblem, parseSelection, type Selection, selectByName } from './selection.ts';

/** Annotation that names further networks of a pod. */
export const NETWORKS_ANNOTATION = 'k8s.v1.cni.cncf.io/networks';

/** Annotation that names a network to replace the default one. */
export const DEFAULT_NETWORK_ANNOTATION = 'v1.multus-cni.io/default-network';

/**
 * Parses both grammars: `[namespace/]name[@interface],…`, and an array of JSON objects. Empty text selects none.
 * @param what names the text in the error (`annotation "k8s.v1.cni.cncf.io/networks"`)
 * @throws CniError 7 (6 for broken JSON) naming the element
 */
export function parseSelections(text: string, what: string): Selection[] {
  if (/[[{"]/.test(text)) return parseObjects(text, what);
  return text
    .split(',')
    .map(item => item.trim())
    .filter(item => item !== '')
    .map(item => parseShort(item, what));
}

function parseObjects(text: string, what: string): Selection[] {
  const value = parseJson(text, (problem, cause) => {
    const message = `Cannot decode ${what}: ${problem}`;
    return new CniError(ErrorCode.decodingFailure, message, { details: text, cause });
  });
  if (!Array.isArray(value)) {
    throw new CniError(ErrorCode.invalidConfig, `Cannot use ${what}: expected an array of objects`, {
      details: text,
    });
  }
  return value.map((one, i) => parseSelection(one, `element ${i} of ${what}`, 'pod'));
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
    throw new CniError(ErrorCode.invalidConfig, `Cannot use ${JSON.stringify(item)} of ${what}: ${problem}`);
  }
  return selectByName(name, namespace, ifname);
}
