// Where may doors write?
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** A directory for the run. */
export interface Ground {
  readonly root: string;
  /** An existing directory in it. */
  dir(name: string): string;
  close(): void;
}

let current: Ground | undefined;

/** The ground of this process, created on first use. */
export function ground(): Ground {
  current ??= makeGround();
  return current;
}

function makeGround(): Ground {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-fuzz-'));
  return {
    root,
    dir(name) {
      const dir = path.join(root, name);
      fs.mkdirSync(dir, { recursive: true });
      return dir;
    },
    close() {
      fs.rmSync(root, { recursive: true, force: true });
      current = undefined;
    },
  };
}
