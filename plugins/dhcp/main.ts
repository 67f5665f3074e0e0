// Entry point of the single-file executable with dhcp alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { dhcp } from './plugin.ts';

await runPlugin(dhcp);
