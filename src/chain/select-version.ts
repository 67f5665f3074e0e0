// Which specification version does a list run with?
import compare from 'semver/functions/compare.js';
import type { ConflistParts } from '../cni/conflist.ts';
import { ConflistError } from '../cni/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { CURRENT_VERSION, isSpecVersion, SPEC_VERSIONS, type SpecVersion } from '../cni/version.ts';

/**
 * The highest version of `cniVersions` and `cniVersion` that this library speaks (SPEC "Version considerations");
 * without `cniVersions` it is `cniVersion` itself, and 0.1.0 when that is missing too.
 * @throws CniError 7 for text that is no version, 1 when no version is left
 */
export function selectVersion({ cniVersion, cniVersions }: ConflistParts): SpecVersion {
  const listed = (cniVersions ?? []).map((text, i) => ({ text, full: normalise(text, ['cniVersions', i]) }));
  if (cniVersion !== '') {
    // Without "cniVersions" any text may stand here; it is judged below, as an unknown version.
    const full = cniVersions === undefined ? cniVersion : normalise(cniVersion, ['cniVersion']);
    if (cniVersions === undefined) return known(full, [cniVersion]);
    listed.push({ text: cniVersion, full });
  } else if (cniVersions === undefined) return '0.1.0';
  const usable = listed.filter(({ full }) => compare(full, CURRENT_VERSION) <= 0);
  usable.sort((a, b) => compare(b.full, a.full));
  const [best] = usable;
  return known(best?.full, listed.map(({ text }) => text));
}

function known(version: string | undefined, asked: readonly string[]): SpecVersion {
  if (version !== undefined && isSpecVersion(version)) return version;
  throw new CniError(
    ErrorCode.incompatibleVersion,
    `Cannot run the list with CNI version ${asked.map(v => JSON.stringify(v)).join(', ') || 'from an empty "cniVersions"'}: supported are ${SPEC_VERSIONS.join(', ')}`,
  );
}

/** One to three decimal parts, as the reference takes them; semver wants three without leading zeros. */
function normalise(text: string, path: readonly (string | number)[]): string {
  const parts = text === '' ? [0, 1, 0] : text.split('.').map(part => (/^\d{1,9}$/.test(part) ? Number(part) : NaN));
  if (parts.length > 3 || parts.some(Number.isNaN)) {
    throw new ConflistError(path, `Cannot use CNI version ${JSON.stringify(text)}: expected up to three numbers joined by dots`);
  }
  return [...parts, 0, 0].slice(0, 3).join('.');
}
