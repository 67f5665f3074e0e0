// Entry point of the single-file executable with ipvlan alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { ipvlan } from './plugin.ts';

await runPlugin(ipvlan);
