// Entry point of the single-file executable with loopback alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { loopback } from './plugin.ts';

await runPlugin(loopback);
