// Runs the bridge link alone, for a single-file executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { bridge } from './plugin.ts';

await runPlugin(bridge);
