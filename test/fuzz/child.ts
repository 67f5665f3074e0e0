// Which share of the inputs does this process try? (one of several, each with a network and a file system of its own)
// A line with a task comes in, a line with its outcome comes out. `run.ts` starts it.

import fs from 'node:fs';
import path from 'node:path';
import { LineSplitter } from '../../src/cni/json.ts';
import { writeAll } from '../../src/plugin/stdio.ts';
import type { AnyDoor } from './door.ts';
import { DOORS } from './doors.ts';
import { ground } from './ground.ts';
import type { Outcome, Task } from './run.ts';

/** Where we keep files by default, and what exists besides. */
const OUR_PLACES = /^\/(tmp\/catena-fuzz-|var\/lib\/(cni|catena)\/|run\/(catena|cni|netns|xtables\.lock$))/;

const lines = new LineSplitter();
for await (const piece of Bun.stdin.stream()) {
  for (const line of lines.push(piece)) say(await perform(JSON.parse(line) as Task));
}
for (const door of DOORS) await door.close();
ground().close();
process.exit(0);

async function perform(task: Task): Promise<Outcome> {
  if (task.door === undefined) return { strayFiles: findStrayFiles() };
  const door = DOORS.find(one => one.name === task.door) as AnyDoor;
  const failure = task.inputs === 0 ? await door.pushSeeds() : await push(door, task);
  return failure === undefined ? {} : { failure };
}

function push(door: AnyDoor, { inputs, seed, telling }: Task) {
  return door.push(inputs, seed, telling ? { onInput: input => say({ input }) } : {});
}

/** Files where there should be none; and files of a successful path traversal, anywhere. */
function findStrayFiles(): string[] {
  return ['/tmp', '/run', '/var/lib'].flatMap(dir => {
    const entries = fs.readdirSync(dir, { recursive: true, withFileTypes: true });
    const files = entries
      .filter(entry => !entry.isDirectory())
      .map(entry => path.join(entry.parentPath, entry.name));
    const isProject = (file: string): boolean => file.startsWith(`${process.cwd()}/`);
    return files.filter(file => !isProject(file) && (!OUR_PLACES.test(file) || file.includes('ESCAPE')));
  });
}

function say(outcome: Outcome): void {
  writeAll(1, `${JSON.stringify(outcome)}\n`);
}
