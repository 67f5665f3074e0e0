// Entry point of the single-file executable with portmap alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { portmap } from './plugin.ts';

await runPlugin(portmap);
