// Do programs under test run as they do on a node?
//
// `bun test --no-orphans` ends what a test leaves behind. Bun hands the option down by its environment, and each of our
// executables would then end its plugins when it dies, which on a node it does not. (`Bun.spawn` without `env` still passes on the original environment.)
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

delete process.env.BUN_FEATURE_FLAG_NO_ORPHANS;

// Files that a test writes have the modes that it gives them, under any umask of the caller.
process.umask(0o022);

// Processes that share fast tests have a run directory each: a lock in it is about an attachment, and tests give theirs the same names.
// Another user than root has none.
const given = process.env.CATENA_RUN_DIR;
const own = `catena-run-${process.pid}-`;
if ((given !== undefined || process.getuid?.() !== 0) && !given?.includes(own)) {
  const parent = given ?? tmpdir();
  mkdirSync(parent, { recursive: true });
  process.env.CATENA_RUN_DIR = mkdtempSync(join(parent, own));
}
