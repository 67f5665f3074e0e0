// Entry point of the single-file executable with tap alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { tap } from './plugin.ts';

await runPlugin(tap);
