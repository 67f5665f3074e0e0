// How is a tap made in another SELinux context?
//
// The kernel labels a tap with the context of the process that makes it, and ignores the context for new sockets
// (selinux_tun_dev_create in security/selinux/hooks.c). A process changes context when it executes a program, so one is needed:
// `ip`, as in the reference.
import { writeFileSync } from 'node:fs';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import type { NewTap } from '../../src/sys/tun.ts';

/** The context of the program that the thread executes next. */
const NEXT_CONTEXT = '/proc/thread-self/attr/exec';
const DEADLINE_MS = 10_000;

/**
 * Makes a tap as `createTap` does, in a context.
 * @throws CniError when this kernel has no SELinux, or the program fails; then there is no tap
 */
export function createTapInContext(netns: Netns, tap: NewTap, context: string): void {
  const { ifname, multiQueue, owner, group } = tap;
  const argv = [
    ...['ip', 'tuntap', 'add', 'mode', 'tap', 'name', ifname, 'vnet_hdr'],
    ...(multiQueue ? ['multi_queue'] : []),
    ...(owner === undefined ? [] : ['user', String(owner)]),
    ...(group === undefined ? [] : ['group', String(group)]),
  ];
  const { exitCode, stderr } = inNetns(netns, () => {
    writeContext(context);
    try {
      return Bun.spawnSync(argv, { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe', timeout: DEADLINE_MS });
    } finally {
      writeContext('');
    }
  });
  if (exitCode === 0) return;
  throw new CniError(
    ErrorCode.internal,
    `Cannot create tap "${ifname}" in context "${context}": "ip tuntap" failed: ${stderr.toString().trim() || 'no message'}`,
  );
}

function writeContext(context: string): void {
  try {
    // An empty line takes the context back.
    writeFileSync(NEXT_CONTEXT, context || '\n');
  } catch (cause) {
    if (context === '') return;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "selinuxContext" "${context}": ${(cause as NodeJS.ErrnoException).code}; is SELinux enabled, and does it have that context?`,
      { cause },
    );
  }
}
