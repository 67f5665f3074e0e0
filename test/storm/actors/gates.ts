// How does a foreign IPAM plugin hang for as long as a round wants it to?

import fs from 'node:fs';
import type { Round } from '../history.ts';
import { podId } from '../networks.ts';
import { waitFor } from '../node.ts';
import { GATES } from '../place.ts';

/**
 * Longest time until a plugin that is to hang is called: a GC of the network, which waits for one that hangs, may be before it,
 * and no caller's deadline may end before that.
 */
const CALLED_MS = 3_000;

/** Deadline of an ADD whose foreign plugin hangs: for longer than the deadline of the others. */
export const HANGING_DEADLINE_MS = 40_000;

/** Has the foreign plugin hang in each ADD, and fail in each DEL, of the round that says so. @returns the files that it waits for */
export function setGates(round: Round): string[] {
  return round.flatMap(action => {
    if (!('foreign' in action) || action.foreign === undefined) return [];
    const gate = `${GATES}/${podId(action.pod)}`;
    fs.writeFileSync(gate, `${action.foreign}\n`);
    return action.foreign === 'stuck' ? [] : [gate];
  });
}

/** The foreign plugin answers as usual again. */
export function removeGates(): void {
  for (const name of fs.readdirSync(GATES)) fs.rmSync(`${GATES}/${name}`, { force: true });
}

/** Lets all go on, once each has been called or its ADD has ended. */
export async function openGates(
  gates: readonly string[],
  actions: readonly Promise<unknown>[],
): Promise<void> {
  if (gates.length === 0) return;
  let over = false;
  void Promise.all(actions).then(() => {
    over = true;
  });
  await waitFor(() => over || gates.every(gate => fs.existsSync(`${gate}.waits`)), CALLED_MS);
  for (const gate of gates) fs.rmSync(gate, { force: true });
}
