// In which versions of the CNI specification do tests call plugins?
//
// Kernel tests call them in one, since what a plugin does does not depend on it. All versions are played where they matter: in
// test/protocol, where results are converted, by `catena conformance`, which calls every plugin in each, and by the full chain.

/** The versions that must work end to end, oldest first. */
export const SPEC_VERSIONS = ['0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;

/** One of {@link SPEC_VERSIONS}. */
export type SpecVersion = (typeof SPEC_VERSIONS)[number];

/** The newest of them, for tests in which the version does not matter. */
export const LATEST_SPEC_VERSION = '1.1.0' satisfies SpecVersion;

/** Whether plugins know CHECK in this version (since 0.4.0). */
export function hasCheck(version: SpecVersion): boolean {
  return version !== '0.3.1';
}
