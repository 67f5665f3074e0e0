// Entry point of the single-file executable with whereabouts alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { whereabouts } from './plugin.ts';

await runPlugin(whereabouts);
