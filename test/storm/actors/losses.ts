// What does a node lose that its plugins count on?

import fs from 'node:fs';
import type { Loss } from '../history.ts';
import { tool } from '../node.ts';

const STATE = ['/run/catena', '/run/cni', '/var/lib/catena', '/var/lib/cni'];
const AHEAD_S = 3_600;

/** Takes away, or changes, what the action names; what a boot takes besides is the driver's. */
export async function lose(what: Loss['what']): Promise<void> {
  if (what === 'rules') await tool(['nft', 'flush', 'ruleset']);
  if (what === 'run' || what === 'boot') empty('/run/catena', '/run/cni');
  if (what === 'journal') empty('/var/lib/catena');
  if (what === 'leases') empty('/var/lib/cni');
  if (what === 'future') for (const dir of STATE) postdate(dir);
  if (what === 'boot') await reboot();
}

/** Nothing that the kernel held outlives a boot, and it has a new name. */
async function reboot(): Promise<void> {
  await tool(['nft', 'flush', 'ruleset']);
  for (const name of devices()) await tool(['ip', 'link', 'delete', name]).catch(() => undefined);
  fs.writeFileSync('/run/boot_id', `${crypto.randomUUID()}\n`);
}

/** Of the host, but for those that every namespace has. */
function devices(): string[] {
  const text = fs.readFileSync('/proc/net/dev', 'utf8');
  const names = text.split('\n').flatMap(line => /^\s*([^:\s]+):/.exec(line)?.[1] ?? []);
  return names.filter(name => /^(veth|bwp|br)/.test(name));
}

function empty(...dirs: string[]): void {
  for (const dir of dirs) {
    if (!fs.existsSync(dir)) continue;
    for (const name of fs.readdirSync(dir)) fs.rmSync(`${dir}/${name}`, { recursive: true, force: true });
  }
}

/** The clock was set back: what there is was written in a time to come. */
function postdate(dir: string): void {
  if (!fs.existsSync(dir)) return;
  const then = Date.now() / 1000 + AHEAD_S;
  for (const name of fs.readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
    // A living daemon's calls file is named after the time of its socket, which does not change.
    if (name.includes('.sock')) continue;
    try {
      fs.lutimesSync(`${dir}/${name}`, then, then);
    } catch {
      // It was deleted since.
    }
  }
}
