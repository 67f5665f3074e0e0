// Entry point of the single-file executable with tuning alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { tuning } from './plugin.ts';

await runPlugin(tuning);
