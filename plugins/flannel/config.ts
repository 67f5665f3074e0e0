// Which options does the flannel plugin take, and which keys may its delegate not set?
import * as z from 'zod/mini';
import { invalidConfig } from '../../src/cni/errors.ts';
import { memberOf } from '../../src/cni/json.ts';
import { PluginConfig, Route } from '../../src/cni/schemas.ts';

/** Where flanneld writes its subnet, and where delegate configurations are kept. */
export const DEFAULT_SUBNET_FILE = '/run/flannel/subnet.env';
export const DEFAULT_DATA_DIR = '/var/lib/cni/flannel';

/** Options of a `"type": "flannel"` entry. The README's table repeats these descriptions. */
export const FlannelConf = z.extend(PluginConfig, {
  /** File into which flanneld writes this node's subnet. */
  subnetFile: z._default(z.string(), DEFAULT_SUBNET_FILE),
  /** Directory that keeps each attachment's delegate configuration from ADD until DEL. */
  dataDir: z._default(z.string(), DEFAULT_DATA_DIR),
  /** Configuration of the plugin that does the work, without `name` and `ipam`. */
  delegate: z.optional(z.looseObject({})),
  /** Configuration of the IPAM plugin; subnets and routes are added to it. */
  ipam: z.optional(z.looseObject({ type: z.optional(z.string()), routes: z.optional(z.array(Route)) })),
  runtimeConfig: z.optional(z.looseObject({})),
});
export type FlannelConf = z.output<typeof FlannelConf>;

/**
 * Rejects a delegate that sets keys reserved for this plugin.
 * @throws CniError 7
 */
export function validateFlannelConf({ delegate = {} }: FlannelConf): void {
  const problem = findDelegateProblem(delegate);
  if (problem) throw invalidConfig(`Cannot use "delegate": ${problem}`);
}

function findDelegateProblem(delegate: Record<string, unknown>): string | undefined {
  const type = memberOf(delegate, 'type');
  if ('type' in delegate && typeof type !== 'string') {
    return `its "type" is ${JSON.stringify(delegate.type)}, expected the name of a plugin`;
  }
  if (type === 'flannel') return 'its "type" is "flannel", which cannot delegate to itself';
  const taken = ['name', 'ipam'].find(key => key in delegate);
  return taken && `it has ${JSON.stringify(taken)}, which flannel sets; move it next to "delegate"`;
}
