// How does a test call a slow plugin, and inspect what it left?
import { existsSync, readdirSync } from 'node:fs';
import type { Daemon } from './daemon.ts';
import { type Container, directories, type Lab, type Row } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** bridge with host-local in both families, as configured by podman. */
export function bridgeOf(lab: Lab, ipam: object = {}): Row {
  const ranges = [[{ subnet: '10.88.0.0/16' }], [{ subnet: 'fd88::/64' }]];
  const all = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases`, ...ipam };
  return { cniVersion: '1.0.0', name: 'podnet', type: 'bridge', bridge: 'br0', isGateway: true, ipam: all };
}

/** Names of the current leases. */
export function leasesIn(lab: Lab): string[] {
  const dir = `${lab.tmp}/leases/podnet`;
  return existsSync(dir) ? readdirSync(dir).filter(name => /^(10\.|fd)/.test(name)) : [];
}

/** The state that the daemon reports. */
export async function stateOf(daemon: Daemon): Promise<Row> {
  return (await (await daemon.fetch('/v1/state')).json()) as Row;
}

/** Starts a plugin call and leaves it running; the caller must end it. */
export function startPlugin(
  lab: Lab,
  plugin: string,
  call: { command: string; conf: object; container: Container; cniPath?: string },
): Bun.Subprocess<'pipe', 'pipe', 'pipe'> {
  const { command, conf, container, cniPath = BIN_DIR } = call;
  const child = Bun.spawn(['nsenter', `--net=${lab.host.path}`, '--', `${BIN_DIR}/${plugin}`], {
    env: {
      ...directories(lab.tmp),
      CNI_COMMAND: command,
      CNI_CONTAINERID: container.id,
      CNI_NETNS: container.path,
      CNI_IFNAME: 'eth0',
      CNI_PATH: cniPath,
      PATH: process.env.PATH ?? '',
    },
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'pipe',
  });
  child.stdin.write(JSON.stringify(conf));
  child.stdin.end();
  return child;
}
