// Run ptp on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { ptp } from './plugin.ts';

await runPlugin(ptp);
