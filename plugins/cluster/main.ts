// Entry point of the single-file executable with cluster alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { cluster } from './plugin.ts';

await runPlugin(cluster);
