// Entry point of the single-file executable with macvlan alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { macvlan } from './plugin.ts';

await runPlugin(macvlan);
