// Entry point of the single-file executable with vlan alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { vlan } from './plugin.ts';

await runPlugin(vlan);
