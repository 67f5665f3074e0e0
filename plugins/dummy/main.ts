// Entry point of the single-file executable with dummy alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { dummy } from './plugin.ts';

await runPlugin(dummy);
