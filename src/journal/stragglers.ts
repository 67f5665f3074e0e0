// Does a link still work for somebody who has died?
import { readdirSync, readFileSync } from 'node:fs';
import type { AttachmentRecord } from './lines.ts';
import { processOf, RUNNER_VARIABLE } from './runner.ts';

/** Process ids of links that were started for the attachment by those who began to work on it and have not ended. */
export function findStragglers({
  containerId,
  ifname,
  runners,
}: Pick<AttachmentRecord, 'containerId' | 'ifname' | 'runners'>): number[] {
  const wanted = [`CNI_CONTAINERID=${containerId}`, `CNI_IFNAME=${ifname}`];
  const own = processOf();
  const dead = runners
    .map(processOf)
    .filter(one => one !== own)
    .map(one => `${RUNNER_VARIABLE}=${one}`);
  if (dead.length === 0) return [];
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => {
      const environment = environmentOf(pid);
      return wanted.every(one => environment.includes(one)) && dead.some(one => environment.includes(one));
    })
    .map(Number);
}

/** Empty when the process has ended meanwhile. */
function environmentOf(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return [];
  }
}
