// Entry point of the single-file executable with vrf alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { vrf } from './plugin.ts';

await runPlugin(vrf);
