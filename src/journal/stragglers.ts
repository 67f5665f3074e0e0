// Does a link still work for somebody who has died?
import { readdirSync, readFileSync } from 'node:fs';
import type { AttachmentRecord } from './record.ts';
import { processOf, RUNNER_VARIABLE, WORKER_VARIABLE } from './runner.ts';

/**
 * Process ids of links that were started for the attachment by those who began to work on it and have not ended; and of
 * workers of theirs, which may be in the middle of one of its links.
 */
export function findStragglers({
  containerId,
  ifname,
  runners,
}: Pick<AttachmentRecord, 'containerId' | 'ifname' | 'runners'>): number[] {
  const wanted = [`CNI_CONTAINERID=${containerId}`, `CNI_IFNAME=${ifname}`];
  const dead = findDead(runners);
  if (dead.length === 0) return [];
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => {
      const environment = environmentOf(pid);
      const isOf = (variable: string) => dead.some(one => environment.includes(`${variable}=${one}`));
      if (isOf(WORKER_VARIABLE)) return true;
      return wanted.every(one => environment.includes(one)) && isOf(RUNNER_VARIABLE);
    })
    .map(Number);
}

/** Whether somebody has begun to work on the attachment and died; to be asked by who has claimed it. */
export function wasCutOff({ runners }: Pick<AttachmentRecord, 'runners'>): boolean {
  return findDead(runners).length > 0;
}

/** Nobody but this process works on what it has claimed. */
function findDead(runners: AttachmentRecord['runners']): string[] {
  const own = processOf();
  return runners.map(processOf).filter(one => one !== own);
}

/** Empty when the process has ended meanwhile. */
function environmentOf(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return [];
  }
}
