// Do programs under test run as they do on a node?
//
// `bun test --no-orphans` ends what a test leaves behind. Bun hands the option down by its environment, and each of our
// executables would then end its plugins when it dies, which on a node it does not. (`Bun.spawn` without `env` still passes on the original environment.)
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

delete process.env.BUN_FEATURE_FLAG_NO_ORPHANS;

// Another user than root has no run directory, and an ADD that is on record takes a lock in it.
if (process.getuid?.() !== 0) process.env.CATENA_RUN_DIR ??= mkdtempSync(join(tmpdir(), 'catena-run-'));
