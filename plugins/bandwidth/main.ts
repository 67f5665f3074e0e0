// Entry point of the single-file executable with bandwidth alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { bandwidth } from './plugin.ts';

await runPlugin(bandwidth);
