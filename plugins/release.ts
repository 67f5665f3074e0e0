// Which release does an executable report when it is started by hand?
import manifest from '../package.json' with { type: 'json' };
import { RUNNER_NAME } from './registry.ts';

/** The releases of containernetworking/plugins and flannel-io/cni-plugin whose behaviour our plugins match. */
const REFERENCE = '1.9.1';

/**
 * A semantic version that begins with that of the reference, since programs infer a plugin's features from it: nerdctl starts
 * `firewall` without arguments and expects at least v1.1.0 on standard error, otherwise it warns that bridge networks are not
 * isolated from each other. The delegate runner has no counterpart in the reference.
 */
export function releaseOf(name: string): string {
  return name === RUNNER_NAME ? manifest.version : `${REFERENCE}+catena-${manifest.version}`;
}
