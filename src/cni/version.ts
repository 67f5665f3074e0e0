// Which specification versions exist, and what does each allow?
import { CniError, ErrorCode } from './errors.ts';

/** Every released specification version, oldest first. */
export const SPEC_VERSIONS = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;

/** One of the released specification versions. */
export type SpecVersion = (typeof SPEC_VERSIONS)[number];

/** The newest version that this library supports. */
export const CURRENT_VERSION: SpecVersion = '1.1.0';

/** The first version in which each feature may be used. */
export const SINCE = { check: '0.4.0', prevResultOnDel: '0.4.0', gc: '1.1.0', status: '1.1.0' } as const;

/** True for the exact text of a released version; `"1.0"` is not one, as in the reference. */
export function isSpecVersion(text: string): text is SpecVersion {
  return (SPEC_VERSIONS as readonly string[]).includes(text);
}

/** True when `version` is `since` or newer. Both must be released versions, ordered as in the table. */
export function atLeast(version: SpecVersion, since: SpecVersion): boolean {
  return SPEC_VERSIONS.indexOf(version) >= SPEC_VERSIONS.indexOf(since);
}

/** Error 1 with the reference's wording, which other software matches. */
export function incompatible(version: string, supported: readonly string[]): CniError {
  return new CniError(ErrorCode.incompatibleVersion, 'incompatible CNI versions', {
    details: `config is ${JSON.stringify(version)}, plugin supports [${supported.map(v => JSON.stringify(v)).join(' ')}]`,
  });
}
