// How does a test get its own firewalld with its own bus inside a fake host?
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { busCommand, clientCommand, firewalldCommand, firewalldEnv } from './firewalld-packages.ts';
import type { Lab } from './netns.ts';
import { until } from './until.ts';

/** firewalld first starts a Python interpreter and reads all its services. */
const START = { withinMs: 45_000, everyMs: 100 };

/** A firewalld that sees only the fake host. */
export interface Firewalld {
  /** What plugins need to find it. */
  readonly env: Readonly<Record<string, string>>;
  /** Runs `firewall-cmd`; returns its output. */
  cmd(...args: string[]): Promise<string>;
  /** Ends firewalld, but not the bus; firewalld removes its rules. */
  stop(): Promise<void>;
}

/** Starts a bus and firewalld, and waits until it responds. */
export async function startFirewalld(
  lab: Lab,
  backend: 'nftables' | 'iptables' = 'nftables',
): Promise<Firewalld> {
  const dir = `${lab.tmp}/firewalld`;
  mkdirSync(dir);
  writeFileSync(`${dir}/firewalld.conf`, `FirewallBackend=${backend}\n`);
  writeFileSync(`${dir}/bus.conf`, busConfig(`${dir}/bus`));
  const env = { DBUS_SYSTEM_BUS_ADDRESS: `unix:path=${dir}/bus` };
  const variables = Object.entries({ ...firewalldEnv(), ...env }).map(([name, value]) => `${name}=${value}`);
  const inEnv = ['env', ...variables];
  const cmd = (...args: string[]) => lab.run(lab.host, [...inEnv, ...clientCommand(...args)]);
  lab.start(lab.host, [...inEnv, ...busCommand(`--config-file=${dir}/bus.conf`, '--nofork')]);
  await until(() => existsSync(`${dir}/bus`), START);
  const options = ['--nofork', '--nopid', '--system-config', dir, '--log-file', `${dir}/log`];
  const daemon = lab.start(lab.host, [...inEnv, ...firewalldCommand(...options)]);
  await until(async () => (await cmd('--state')).exitCode === 0, START);
  return {
    env,
    async cmd(...args) {
      const { exitCode, stdout, stderr } = await cmd(...args);
      if (exitCode !== 0) throw new Error(`Cannot run "firewall-cmd ${args.join(' ')}": ${stderr}`);
      return stdout.trim();
    },
    async stop() {
      daemon.kill('SIGTERM');
      await daemon.exited;
    },
  };
}

function busConfig(socket: string): string {
  return `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
  "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=${socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_type="method_call"/>
    <allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>
`;
}
