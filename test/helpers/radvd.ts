// How does a test get a router that advertises a prefix?
import { writeFileSync } from 'node:fs';
import { serverCommand } from './dhcp-packages.ts';
import type { Lab, Namespace } from './netns.ts';

/** What the router advertises. */
export interface RadvdOptions {
  readonly prefix?: string;
  /** Further lines of the interface's section. */
  readonly lines?: readonly string[];
  /** Further lines of the prefix's section. */
  readonly prefixLines?: readonly string[];
}

/** Starts radvd on an interface. It waits for the carrier. @returns a function that stops it without a word */
export function startRadvd(
  lab: Lab,
  ns: Namespace,
  device: string,
  { prefix = 'fd77::/64', lines = [], prefixLines = [] }: RadvdOptions = {},
): () => Promise<void> {
  const config = `${lab.tmp}/radvd-${device}.conf`;
  const section = [
    ...['AdvSendAdvert on;', 'MinRtrAdvInterval 3;', 'MaxRtrAdvInterval 4;', ...lines],
    `prefix ${prefix} { AdvOnLink on; ${prefixLines.join(' ')} };`,
  ];
  writeFileSync(config, `interface ${device} { ${section.join('\n')} };\n`);
  // A child of the one before may lock its file for a moment longer.
  const pid = `${lab.tmp}/radvd-${crypto.randomUUID()}.pid`;
  const child = lab.start(
    ns,
    serverCommand(
      'radvd',
      '-n',
      '-C',
      config,
      '-p',
      pid,
      '-m',
      'logfile',
      '-l',
      `${lab.tmp}/radvd-${device}.log`,
    ),
  );
  return async () => {
    child.kill('SIGKILL');
    await child.exited;
  };
}
