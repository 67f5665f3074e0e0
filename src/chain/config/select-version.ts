// Which specification version does a list run with?
import type Compare from 'semver/functions/compare.js';
import { ConflistError, type ConflistParts } from '../../cni/conflist.ts';
import { ErrorCode } from '../../cni/errors.ts';
import { isSpecVersion, SPEC_VERSIONS, type SpecVersion } from '../../cni/version.ts';

/**
 * The highest version of `cniVersions` and `cniVersion` that this library speaks (SPEC "Version considerations").
 * Without `cniVersions` it is `cniVersion` itself, and 0.1.0 if that is missing too.
 * @throws CniError 7 for text that is not a version, 1 if no supported version remains
 */
export function selectVersion({ cniVersion, cniVersions }: ConflistParts): SpecVersion {
  if (cniVersions === undefined) {
    // As in the reference, "1.0" means 1.0.0 only in `cniVersions`.
    return cniVersion === '' ? '0.1.0' : known(cniVersion, 'cniVersion', [cniVersion]);
  }
  // semver compiles dozens of regular expressions when it is loaded: half a millisecond that most lists do not need.
  const compare: typeof Compare = require('semver/functions/compare.js');
  const asked = cniVersion === '' ? cniVersions : [...cniVersions, cniVersion];
  const [best] = asked
    .map((text, i) => normalise(text, i < cniVersions.length ? ['cniVersions', i] : ['cniVersion']))
    .filter(isSpecVersion)
    .sort((a, b) => compare(b, a));
  return known(best, 'cniVersions', asked);
}

function known(version: string | undefined, key: string, asked: readonly string[]): SpecVersion {
  if (version !== undefined && isSpecVersion(version)) return version;
  throw new ConflistError(
    [key],
    `Cannot use "${key}" of the list: found ${asked.map(v => JSON.stringify(v)).join(', ') || 'no version'}, supported versions are ${SPEC_VERSIONS.join(', ')}`,
    { code: ErrorCode.incompatibleVersion },
  );
}

/** One to three decimal parts, as the reference accepts them; semver requires three without leading zeros. */
function normalise(text: string, path: readonly (string | number)[]): string {
  const parts =
    text === '' ? [0, 1, 0] : text.split('.').map(part => (/^\d{1,9}$/.test(part) ? Number(part) : NaN));
  if (parts.length > 3 || parts.some(Number.isNaN)) {
    throw new ConflistError(
      path,
      `Cannot use CNI version ${JSON.stringify(text)}: expected up to three numbers separated by dots`,
    );
  }
  return [...parts, 0, 0].slice(0, 3).join('.');
}
