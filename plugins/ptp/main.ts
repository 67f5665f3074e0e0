// Entry point of the single-file executable with ptp alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { ptp } from './plugin.ts';

await runPlugin(ptp);
