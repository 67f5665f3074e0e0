// Which options does the tap plugin take, and which combinations are invalid?
import * as z from 'zod/mini';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/link.ts';

/** Largest id of a user or group; the next number means "none". */
const LAST_ID = 0xfffffffe;
/** The largest MTU that the kernel gives a tap. */
const LAST_MTU = 65_521;

/** Options of a `"type": "tap"` entry; {@link validateTapConf} refuses invalid values. */
export const TapConf = z.extend(PluginConfig, {
  /** `tap`, or `macvtap` for a tap that is a child of the device `master`. */
  kind: z._default(z.string(), 'tap'),
  /** Allow several queues. */
  multiQueue: z._default(z.boolean(), false),
  /** MTU in bytes; 0 keeps the kernel's default. */
  mtu: z._default(z.int(), 0),
  /** Hardware address, six bytes; unless given, that of a macvtap is derived from the attachment, and the kernel chooses that of a tap. */
  mac: z.optional(z.string()),
  /** Id of the user that may attach to the tap. */
  owner: z.optional(z.int()),
  /** Id of the group that may attach to the tap. */
  group: z.optional(z.int()),
  /** SELinux context in which the tap is made. */
  selinuxContext: z.optional(z.string()),
  /** Bridge in the container that the tap becomes a port of. */
  bridge: z.optional(z.string()),
  /** With `macvtap`: device of the host. */
  master: z.optional(z.string()),
  /** With `macvtap`: `bridge`, `private`, `vepa` or `passthru`. */
  mode: z._default(z.string(), 'bridge'),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `mac`: overrides `mac` and `CNI_ARGS` unless empty. */
      mac: z.optional(z.string()),
    }),
  ),
});
export type TapConf = z.output<typeof TapConf>;

export function isMacvtap({ kind }: Pick<TapConf, 'kind'>): boolean {
  return kind === 'macvtap';
}

/** Refuses options that contradict each other. */
export const validateTapConf = validatorOf(
  'tap',
  (conf: TapConf) => findProblem(conf) ?? (isMacvtap(conf) ? findMacvtapProblem(conf) : findTapProblem(conf)),
);

function findProblem({ kind, mtu, bridge }: TapConf): string | undefined {
  if (kind !== 'tap' && kind !== 'macvtap') return `"kind" is "${kind}", expected "tap" or "macvtap"`;
  if (mtu !== 0 && (mtu < 68 || mtu > LAST_MTU)) {
    return `"mtu" is ${mtu}, expected 68 to ${LAST_MTU}, or 0 for the default`;
  }
  const problem = bridge ? findIfnameProblem(bridge) : undefined;
  return problem && `"bridge" is "${bridge}": ${problem}`;
}

function findTapProblem({ owner, group, master, selinuxContext }: TapConf): string | undefined {
  for (const [key, id] of Object.entries({ owner, group })) {
    if (id !== undefined && (id < 0 || id > LAST_ID)) return `"${key}" is ${id}, expected 0 to ${LAST_ID}`;
  }
  if (selinuxContext && /[\0\n]/.test(selinuxContext))
    return '"selinuxContext" must not contain a line break';
  return master && '"master" is for "kind": "macvtap" only';
}

function findMacvtapProblem({ master, mode, ...others }: TapConf): string | undefined {
  const { owner, group, multiQueue, selinuxContext, bridge } = others;
  if (!master) return '"master" is missing; a macvtap needs a device of the host';
  const problem = findIfnameProblem(master);
  if (problem) return `"master" is "${master}": ${problem}`;
  if (!Object.hasOwn(MACVLAN_MODES, mode)) {
    return `"mode" is "${mode}", expected ${Object.keys(MACVLAN_MODES).join(', ')}`;
  }
  const unused = Object.entries({
    owner,
    group,
    selinuxContext,
    bridge,
    multiQueue: multiQueue || undefined,
  });
  const [key] = unused.find(([, value]) => value !== undefined && value !== '') ?? [];
  return key && `"${key}" has no effect with "kind": "macvtap"; remove it`;
}
