// When can a test not run here, and how does the summary show the reason?

import { afterAll, describe, test } from 'bun:test';
import fs from 'node:fs';
import { TEST_PATH } from './command.ts';
import { closeLabs } from './netns.ts';
import { REFERENCE_BIN_DIR } from './plugin.ts';

/** A test's requirement: `undefined` if it is met, otherwise the reason why it is not. */
export type Need = string | undefined;

/**
 * `describe` for tests that create namespaces; skipped with the reason in its title if they cannot be created or a need is not
 * met. At its end it removes what tests that exceeded their deadline left. Its tests run beside each other, since they mostly wait for
 * the kernel and for processes, so each has a fake host of its own; {@link describeInOrder} is for those that share one.
 */
export function describeRoot(title: string, body: () => void, ...needs: Need[]): void {
  describeGuarded(describe.concurrent, title, () => withoutLeftovers(body), [requiresRoot(), ...needs]);
}

/** {@link describeRoot} whose tests run one after the other, since they share a host, a daemon or a runtime. */
export function describeInOrder(title: string, body: () => void, ...needs: Need[]): void {
  describeGuarded(describe.serial, title, () => withoutLeftovers(body), [requiresRoot(), ...needs]);
}

/** `describe` that is skipped with the reason in its title if a need is not met. */
export function describeNeeding(title: string, body: () => void, ...needs: Need[]): void {
  describeGuarded(describe, title, body, needs);
}

function withoutLeftovers(body: () => void): void {
  afterAll(closeLabs);
  body();
}

function describeGuarded(
  group: (title: string, body: () => void) => void,
  title: string,
  body: () => void,
  needs: readonly Need[],
): void {
  const reason = needs.find(need => need !== undefined);
  if (reason === undefined) group(title, body);
  else describe.skip(`${title} [skipped: ${reason}]`, body);
}

/** `test` that is skipped with the reason in its title if a need is not met. */
export function testNeeding(title: string, body: () => Promise<void> | void, ...needs: Need[]): void {
  const reason = needs.find(need => need !== undefined);
  if (reason === undefined) test(title, body);
  else test.skip(`${title} [skipped: ${reason}]`, body);
}

/** Needs the right to create network namespaces: root, or a user namespace. */
export function requiresRoot(): Need {
  return probe('namespaces', ['unshare', '--net', 'true'])
    ? undefined
    : 'needs root to make network namespaces';
}

/** Needs to see every process of the machine, as in no container: GC keeps what a process may use that it cannot see. */
export function requiresAllProcesses(): Need {
  const isAll = fs.readlinkSync('/proc/self/ns/pid') === `pid:[${0xef_ff_ff_fc}]`;
  return isAll ? undefined : 'needs to see every process of the machine, as in no container';
}

/** Needs programs in the `PATH`. */
export function requires(...commands: string[]): Need {
  const missing = commands.filter(command => Bun.which(command, { PATH: TEST_PATH }) === null);
  return missing.length === 0 ? undefined : `needs ${missing.map(name => `"${name}"`).join(', ')}`;
}

/** Needs the reference executables of Debian's containernetworking-plugins. */
export function requiresReference(...names: string[]): Need {
  const missing = names.find(name => !fs.existsSync(`${REFERENCE_BIN_DIR}/${name}`));
  return missing === undefined
    ? undefined
    : `needs "${REFERENCE_BIN_DIR}/${missing}" (containernetworking-plugins)`;
}

/** Needs a kernel that can create devices of a kind, such as `ifb`; `extra` are further arguments of `ip link add`. */
export function requiresLinkKind(kind: string, ...extra: string[]): Need {
  const argv = ['unshare', '--net', 'ip', 'link', 'add', 'probe0', ...extra, 'type', kind];
  return probe(`link ${kind}`, argv) ? undefined : `needs a kernel with device kind "${kind}"`;
}

/** Needs a kernel that can create VXLAN devices. */
export function requiresVxlan(): Need {
  const kind = ['type', 'vxlan', 'id', '7', 'local', '127.0.0.1', 'dstport', '4789'];
  const argv = ['unshare', '--net', 'ip', 'link', 'add', 'probe0', ...kind];
  return probe('link vxlan', argv) ? undefined : 'needs a kernel with device kind "vxlan"';
}

/** Needs a kernel whose bridges can filter VLANs. */
export function requiresVlanFiltering(): Need {
  const argv = ['unshare', '--net', 'ip', 'link', 'add', 'probe0', 'type', 'bridge', 'vlan_filtering', '1'];
  return probe('VLAN filtering', argv) ? undefined : 'needs a kernel with VLAN filtering on bridges';
}

/** Needs a kernel that can create VLAN devices. */
export function requiresVlanDevices(): Need {
  return requiresUpperKind('vlan', 'id', '7') && 'needs a kernel with devices for VLANs';
}

/** Needs a kernel that can create devices of a kind on top of others, such as `macvlan`; `options` of `ip link add … type <kind>`. */
export function requiresUpperKind(kind: string, ...options: string[]): Need {
  const upper = ['ip', 'link', 'add', 'link', 'probe0', 'name', 'probe1', 'type', kind, ...options].join(' ');
  const script = `ip link add probe0 type veth && ${upper}`;
  return probe(`link ${kind}`, ['unshare', '--net', 'sh', '-c', script])
    ? undefined
    : `needs a kernel with device kind "${kind}"`;
}

/** Needs a kernel that can create VRFs. */
export function requiresVrf(): Need {
  const argv = ['unshare', '--net', 'ip', 'link', 'add', 'probe0', 'type', 'vrf', 'table', '7'];
  return probe('VRF', argv) ? undefined : 'needs a kernel with VRFs';
}

const probes = new Map<string, boolean>();

function probe(name: string, argv: string[]): boolean {
  let works = probes.get(name);
  if (works === undefined) {
    works =
      Bun.spawnSync(argv, { env: { PATH: TEST_PATH }, stdout: 'ignore', stderr: 'ignore' }).exitCode === 0;
    probes.set(name, works);
  }
  return works;
}
