// Entry point of the single-file executable with bridge alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { bridge } from './plugin.ts';

await runPlugin(bridge);
