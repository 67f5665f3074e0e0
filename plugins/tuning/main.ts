// Run tuning on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { tuning } from './plugin.ts';

await runPlugin(tuning);
